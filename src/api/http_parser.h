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
  uint64_t max_streamed_bytes = 0;  // of a body of which stream_body() was asked; 0: none is
};

class HttpParser {
 public:
  explicit HttpParser(const HttpLimits& limits);
  ~HttpParser();
  HttpParser(const HttpParser&) = delete;
  HttpParser& operator=(const HttpParser&) = delete;

  enum class State : uint8_t {
    kNeedMore,
    kHeaders,   // headers are complete, the body was not looked at; reported once a request
    kComplete,  // take_body() before feeding more
    kFailed,    // error_status() and error_reason(); nothing more can be parsed
  };
  // Takes all of `input`. Stops after the headers and after the body of a request: feed({}) goes
  // on with what is kept.
  State feed(std::string_view input);
  // Keeps `input` without looking at it: what a client sends ahead while its request is being
  // answered.
  void hold(std::string_view input) { buffer_ += input; }
  [[nodiscard]] size_t held_bytes() const { return buffer_.size(); }

  // Forgets what was read of a request that will not be answered as such. Returns what was kept of
  // its body, because freeing it may take a while.
  std::string discard();

  // The request without its body. Needs State::kHeaders.
  [[nodiscard]] HttpRequest head() const;
  // The client waits for "100 Continue" before it sends a body, which is not too large. Needs
  // State::kHeaders.
  [[nodiscard]] bool expects_continue() const;
  // The body of the request under way is parsed, but not kept.
  void skip_body();
  // The body of the request under way is taken piece by piece, and may have max_streamed_bytes.
  // Needs State::kHeaders, and such a limit.
  void stream_body();
  // What has come of it since the last piece.
  [[nodiscard]] std::string take_piece();
  // The body of the complete request; the parser is then ready for the next request.
  [[nodiscard]] std::string take_body();

  [[nodiscard]] bool has_begun() const;     // some bytes of an unfinished request were consumed
  [[nodiscard]] bool in_body() const;       // its headers are complete
  [[nodiscard]] size_t body_bytes() const;  // in memory, of a body that is not complete yet
  [[nodiscard]] int error_status() const { return error_status_; }
  [[nodiscard]] const std::string& error_reason() const { return error_reason_; }

 private:
  struct Impl;
  State fail(int status, std::string reason);
  State fail_body_too_large(uint64_t limit);
  State parse();
  bool skip_empty_line();
  bool examine_header();
  bool limit_body();
  [[nodiscard]] uint64_t body_limit() const;
  void trim_body();

  HttpLimits limits_;
  std::unique_ptr<Impl> impl_;
  std::string buffer_;  // not parsed yet: an unfinished header, or requests sent ahead
  int error_status_ = 0;
  std::string error_reason_;
};

}  // namespace tandem::api
