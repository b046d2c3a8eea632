#include "api/http_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/parser.hpp>
#include <utility>

#include "base/check.h"

namespace tandem::api {

namespace http = boost::beast::http;

namespace {

// The path of a target "/path?query" or, as clients of proxies send it, "http://host/path?query".
// "": the target names no host.
std::string_view path_of(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (lower(target.substr(0, scheme.size())) == scheme) {
      target.remove_prefix(scheme.size());
      const size_t authority_bytes = std::min(target.find_first_of("/?#"), target.size());
      target.remove_prefix(authority_bytes);
      if (authority_bytes == 0) {
        return {};
      }
      if (!target.starts_with('/')) {
        return "/";
      }
      break;
    }
  }
  return target.substr(0, target.find('?'));
}

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

namespace {

// A body as Beast's parser fills it. Unlike Beast's own it takes no room for all of a body that is
// taken piece by piece.
struct CollectedBody {
  struct value_type {
    std::string text;
    bool streamed = false;
  };

  class reader {
   public:
    template <bool is_request, class Fields>
    reader(http::header<is_request, Fields>& /*header*/, value_type& body) : body_(body) {}

    void init(const boost::optional<uint64_t>& length, boost::beast::error_code& error) {
      if (length && !body_.streamed) {
        body_.text.reserve(static_cast<size_t>(*length));  // the parser has held it to the limit
      }
      error = {};
    }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::beast::error_code& error) {
      size_t bytes = 0;
      for (const boost::asio::const_buffer buffer : boost::beast::buffers_range_ref(buffers)) {
        body_.text.append(static_cast<const char*>(buffer.data()), buffer.size());
        bytes += buffer.size();
      }
      error = {};
      return bytes;
    }
    void finish(boost::beast::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

}  // namespace

struct HttpParser::Impl {
  explicit Impl(const HttpLimits& limits) {
    parser.header_limit(limits.max_header_bytes);
    parser.body_limit(boost::none);  // the headers say which kind of body follows (limit_body)
  }
  std::string& body() { return parser.get().body().text; }

  http::request_parser<CollectedBody> parser;
  bool skipped_empty_line = false;  // which a client may send before a request line
  bool header_examined = false;
  bool limited = false;  // the body is held to the limit of its kind
  bool skips_body = false;
};

HttpParser::HttpParser(const HttpLimits& limits)
    : limits_(limits), impl_(std::make_unique<Impl>(limits)) {}
HttpParser::~HttpParser() = default;

bool HttpParser::has_begun() const { return impl_->parser.got_some() || !buffer_.empty(); }

bool HttpParser::in_body() const { return impl_->header_examined; }

size_t HttpParser::body_bytes() const { return impl_->body().size(); }

void HttpParser::stream_body() {
  CHECK(impl_->header_examined && !impl_->limited, "stream_body() when it is too late");
  impl_->parser.get().body().streamed = true;
}

std::string HttpParser::take_piece() { return std::exchange(impl_->body(), {}); }

// False after fail(). Called only after the headers were accepted: path and key come before the
// body's length.
bool HttpParser::limit_body() {
  if (std::exchange(impl_->limited, true)) {
    return true;
  }
  const uint64_t limit = body_limit();
  const auto length = impl_->parser.content_length();
  if (length && *length > limit) {
    fail_body_too_large(limit);
    return false;
  }
  impl_->parser.body_limit(limit);
  return true;
}

uint64_t HttpParser::body_limit() const {
  return impl_->parser.get().body().streamed ? limits_.max_streamed_bytes : limits_.max_body_bytes;
}

void HttpParser::skip_body() {
  impl_->skips_body = true;
  trim_body();
}

// A skipped body is thrown away as it comes. One that comes in chunks gets its room at once:
// growing step by step would copy tens of megabytes at a time. One whose length is known has it.
void HttpParser::trim_body() {
  constexpr size_t kSmallBytes = 1 << 19;
  constexpr uint64_t kMaxReservedBytes = 64 << 20;
  std::string& body = impl_->body();
  if (impl_->skips_body) {
    std::string().swap(body);
  } else if (impl_->parser.chunked() && !impl_->parser.get().body().streamed &&
             body.size() > kSmallBytes && body.capacity() < kMaxReservedBytes) {
    body.reserve(std::min(limits_.max_body_bytes, kMaxReservedBytes));
  }
}

std::string HttpParser::discard() {
  std::string body = std::move(impl_->body());
  impl_ = std::make_unique<Impl>(limits_);
  std::string().swap(buffer_);
  error_status_ = 0;
  return body;
}

HttpParser::State HttpParser::fail(int status, std::string reason) {
  error_status_ = status;
  error_reason_ = std::move(reason);
  return State::kFailed;
}

HttpParser::State HttpParser::fail_body_too_large(uint64_t limit) {
  return fail(
      413, fmt::format("the body is larger than {} bytes, this server's --max-body-size", limit));
}

// False after fail().
bool HttpParser::examine_header() {
  impl_->header_examined = true;
  const auto& message = impl_->parser.get();
  const auto refuse = [&](int status, std::string reason) {
    fail(status, std::move(reason));
    return false;
  };
  if (message.version() != 10 && message.version() != 11) {
    return refuse(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
  }
  if (message.version() == 11 && message.count(http::field::host) != 1) {
    return refuse(400, "a request needs exactly one Host header");
  }
  if (path_of(view(message.target())).empty()) {
    return refuse(400, "the request target has no path; send for example GET /v1/models");
  }
  // Two lengths are how requests are smuggled through proxies, and so are codings that a proxy
  // reads otherwise: nothing but "chunked" is taken for one.
  const size_t codings = message.count(http::field::transfer_encoding);
  if (message.count(http::field::content_length) > 1 || codings > 1 ||
      (message.count(http::field::content_length) == 1 && codings == 1)) {
    return refuse(400, "a request must state the length of its body once");
  }
  if (codings == 1) {
    if (message.version() == 10) {
      return refuse(400, "HTTP/1.0 has no Transfer-Encoding; send Content-Length");
    }
    if (lower(view(message[http::field::transfer_encoding])) != "chunked") {
      return refuse(400,
                    "the only Transfer-Encoding understood is chunked; send it, or Content-Length");
    }
  }
  const auto expect = message.find(http::field::expect);
  if (expect != message.end() && !impl_->parser.is_done() &&
      lower(view(expect->value())) != "100-continue") {
    return refuse(417, "the only expectation understood is 100-continue");
  }
  return true;
}

// HTTP/1.0 knows no answers before the answer.
bool HttpParser::expects_continue() const {
  const auto& message = impl_->parser.get();
  const auto length = impl_->parser.content_length();
  const bool too_large = length && *length > body_limit();
  return message.version() == 11 && message.count(http::field::expect) > 0 &&
         !impl_->parser.is_done() && !too_large;
}

HttpParser::State HttpParser::feed(std::string_view input) {
  if (error_status_ != 0) {
    return State::kFailed;
  }
  buffer_ += input;
  return parse();
}

// Skips one empty line before a request, which old clients send after a body (RFC 9112, 2.2).
// Returns false if only the first byte of the line has come.
bool HttpParser::skip_empty_line() {
  constexpr std::string_view kEmptyLine = "\r\n";
  if (impl_->parser.got_some() || impl_->skipped_empty_line) {
    return true;
  }
  if (buffer_.starts_with(kEmptyLine)) {
    buffer_.erase(0, kEmptyLine.size());
    impl_->skipped_empty_line = true;
  }
  return buffer_ != kEmptyLine.substr(0, 1);
}

HttpParser::State HttpParser::parse() {
  constexpr size_t kMaxChunkHeaderBytes = 16 * 1024;
  auto& parser = impl_->parser;
  if (impl_->header_examined && !limit_body()) {
    return State::kFailed;
  }
  if (!skip_empty_line()) {
    return State::kNeedMore;
  }
  while (true) {
    boost::beast::error_code error;
    size_t used = 0;
    if (!parser.is_done() && !buffer_.empty()) {
      used = parser.put(boost::asio::const_buffer(buffer_.data(), buffer_.size()), error);
      buffer_.erase(0, used);
      trim_body();
    }
    if (error && error != http::error::need_more) {
      if (error == http::error::body_limit) {
        return fail_body_too_large(body_limit());
      }
      if (error == http::error::header_limit) {
        return fail(431,
                    fmt::format("the headers are larger than {} bytes", limits_.max_header_bytes));
      }
      if (error == http::error::bad_version) {
        return fail(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
      }
      return fail(400, "malformed HTTP request: " + error.message());
    }
    if (parser.is_header_done() && !impl_->header_examined) {
      parser.eager(true);
      return examine_header() ? State::kHeaders : State::kFailed;
    }
    if (parser.is_done()) {
      return State::kComplete;
    }
    if (parser.is_header_done() && buffer_.size() > kMaxChunkHeaderBytes) {
      return fail(400, "malformed HTTP request: endless chunk header");
    }
    if (used == 0 || buffer_.empty()) {
      return State::kNeedMore;
    }
  }
}

HttpRequest HttpParser::head() const {
  const auto& parser = impl_->parser;
  CHECK(impl_->header_examined, "head() before the headers are complete");
  const auto& message = parser.get();
  HttpRequest request;
  request.keep_alive = parser.keep_alive();
  request.version = static_cast<int>(message.version());
  request.method = view(message.method_string());
  const std::string_view target = view(message.target());
  request.path = path_of(target);
  if (const size_t mark = target.find('?'); mark != std::string_view::npos) {
    request.query = target.substr(mark + 1);
  }
  for (const auto& field : message) {
    request.headers.emplace_back(lower(view(field.name_string())),
                                 std::string(view(field.value())));
  }
  return request;
}

std::string HttpParser::take_body() {
  CHECK(impl_->parser.is_done(), "take_body() before the request is complete");
  std::string body = std::move(impl_->body());
  impl_ = std::make_unique<Impl>(limits_);
  return body;
}

}  // namespace tandem::api
