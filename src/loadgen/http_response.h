// One HTTP/1.1 response after another, however its bytes are cut: status, the headers that matter,
// and body bytes as they come. Sockets are elsewhere. Hostile input: headers are limited,
// everything malformed is an error. Threads: one owner.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::loadgen {

class HttpResponse {
 public:
  HttpResponse();
  ~HttpResponse();
  HttpResponse(const HttpResponse&) = delete;
  HttpResponse& operator=(const HttpResponse&) = delete;

  // Takes all of `bytes`; body bytes go to `on_body`. Bytes after a complete response are an error:
  // this client does not send ahead.
  Status feed(std::string_view bytes, const std::function<void(std::string_view)>& on_body);
  // The peer has closed: completes a body that ends with the connection, else an error.
  Status end_of_stream();
  // Ready for the next response.
  void reset();

  [[nodiscard]] bool has_begun() const;
  [[nodiscard]] bool has_header() const;
  [[nodiscard]] bool is_complete() const;
  // Need has_header().
  [[nodiscard]] int status() const;
  [[nodiscard]] bool keep_alive() const;
  [[nodiscard]] const std::string& content_type() const;

 private:
  class Parser;
  std::unique_ptr<Parser> parser_;
  std::string held_;  // an unfinished header or chunk header
};

}  // namespace tandem::loadgen
