// The address of a server: "http://host:port/path". Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::loadgen {

struct Url {
  std::string host;  // without the brackets of an IPv6 address
  uint16_t port = 80;
  std::string path;  // before every route: empty or "/v1" without a slash at its end

  [[nodiscard]] std::string authority() const;  // the Host header
  [[nodiscard]] std::string text() const;
};

// Only http: a load generator next to the server needs no TLS, and says so.
Result<Url> parse_url(std::string_view text);

}  // namespace tandem::loadgen
