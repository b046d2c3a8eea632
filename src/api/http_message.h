// An HTTP request as handlers see it and a response as they give it. Plain data, no sockets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::api {

struct HttpRequest {
  std::string method;
  std::string path;   // the target without query; percent escapes as sent
  std::string query;  // what follows the "?"; likewise
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;
  int version = 11;  // 10 or 11
  bool keep_alive = true;

  // The first header of that name (lower case), or "".
  [[nodiscard]] std::string_view header(std::string_view name) const {
    for (const auto& [known, value] : headers) {
      if (known == name) {
        return value;
      }
    }
    return {};
  }
};

// The letters A to Z in lower case, as names and many values of headers are compared.
[[nodiscard]] std::string lower(std::string_view text);

// The body's length as the headers state it; 0 where they do not.
[[nodiscard]] uint64_t announced_body_bytes(const HttpRequest& head);

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>>
      headers;  // more of them; values without line ends
  std::string body;
};

[[nodiscard]] std::string_view reason_phrase(int status);

enum class BodyFraming {
  kLength,   // Content-Length and the body
  kChunked,  // HTTP/1.1 streams
  kToClose,  // HTTP/1.0 streams: the end of the connection ends the body
};

// Status line and headers up to the empty line. The body is not included.
[[nodiscard]] std::string response_head(const HttpResponse& response, BodyFraming framing,
                                        bool keep_alive);

}  // namespace tandem::api
