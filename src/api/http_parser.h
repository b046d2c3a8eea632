// HTTP/1.1 request bytes in, HttpRequest out; one request after another, however they are cut.
// Hostile input: header and body sizes are limited, everything malformed is one status code and a
// reason. Threads: one owner at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "api/http_message.h"

namespace tandem::api {

struct HttpLimits {
  uint32_t max_header_bytes = 32 * 1024;  // request line and headers
  uint64_t max_body_bytes = 32 * 1024 * 1024;
};

class HttpParser {
 public:
  explicit HttpParser(const HttpLimits& limits);
  ~HttpParser();
  HttpParser(const HttpParser&) = delete;
  HttpParser& operator=(const HttpParser&) = delete;

  enum class State : uint8_t {
    kNeedMore,
    kExpectsContinue,  // headers are complete and the client waits for "100 Continue"; reported
                       // once
    kComplete,         // take() the request before feeding more
    kFailed,           // error_status() and error_reason(); nothing more can be parsed
  };
  // Takes all of `input`; what follows a complete request is kept for the next one: after take(),
  // feed({}) looks at it.
  State feed(std::string_view input);
  // Keeps `input` without looking at it: what a client sends ahead while its request is being
  // answered.
  void hold(std::string_view input) { buffer_ += input; }
  [[nodiscard]] size_t held_bytes() const { return buffer_.size(); }

  // Forgets what was read of a request that will not be answered as such.
  void discard();

  // The complete request; the parser is then ready for the next one.
  [[nodiscard]] HttpRequest take();

  [[nodiscard]] bool has_begun() const;       // some bytes of an unfinished request were consumed
  [[nodiscard]] bool in_body() const;         // its headers are complete
  [[nodiscard]] size_t unread_bytes() const;  // in memory, of requests not taken yet
  [[nodiscard]] int error_status() const { return error_status_; }
  [[nodiscard]] const std::string& error_reason() const { return error_reason_; }

 private:
  struct Impl;
  State fail(int status, std::string reason);
  State parse();
  State examine_header();

  HttpLimits limits_;
  std::unique_ptr<Impl> impl_;
  std::string buffer_;  // not parsed yet: an unfinished header, or requests sent ahead
  int error_status_ = 0;
  std::string error_reason_;
};

}  // namespace tandem::api
