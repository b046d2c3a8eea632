// The address of a server: "http://host:port/path" or https. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::loadgen {

enum class Scheme : uint8_t { kHttp, kHttps };

struct Url {
  Scheme scheme = Scheme::kHttp;
  std::string host;  // without the brackets of an IPv6 address
  uint16_t port = 80;
  std::string path;  // before every route: empty or "/v1" without a slash at its end

  [[nodiscard]] std::string authority() const;  // the Host header
  [[nodiscard]] std::string text() const;
};

// The port is 80 or, with https, 443 where none is given.
Result<Url> parse_url(std::string_view text);

}  // namespace tandem::loadgen
