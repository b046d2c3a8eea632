#include "api/http_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/src.hpp>
#include <utility>

#include "base/check.h"

namespace tandem::api {

namespace http = boost::beast::http;

namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return out;
}

}  // namespace

struct HttpParser::Impl {
  explicit Impl(const HttpLimits& limits) {
    parser.header_limit(limits.max_header_bytes);
    parser.body_limit(limits.max_body_bytes);
  }
  http::request_parser<http::string_body> parser;
  bool header_examined = false;
};

HttpParser::HttpParser(const HttpLimits& limits)
    : limits_(limits), impl_(std::make_unique<Impl>(limits)) {}
HttpParser::~HttpParser() = default;

bool HttpParser::has_begun() const { return impl_->parser.got_some() || !buffer_.empty(); }

bool HttpParser::in_body() const { return impl_->header_examined; }

size_t HttpParser::unread_bytes() const {
  return buffer_.size() + impl_->parser.get().body().size();
}

void HttpParser::discard() {
  impl_ = std::make_unique<Impl>(limits_);
  std::string().swap(buffer_);
  error_status_ = 0;
}

HttpParser::State HttpParser::fail(int status, std::string reason) {
  error_status_ = status;
  error_reason_ = std::move(reason);
  return State::kFailed;
}

HttpParser::State HttpParser::examine_header() {
  impl_->header_examined = true;
  const auto& message = impl_->parser.get();
  if (message.version() != 10 && message.version() != 11) {
    return fail(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
  }
  if (message.version() == 11 && message.count(http::field::host) != 1) {
    return fail(400, "a request needs exactly one Host header");
  }
  // Two lengths are how requests are smuggled through proxies.
  if (message.count(http::field::content_length) > 1 ||
      message.count(http::field::transfer_encoding) > 1 ||
      (message.count(http::field::content_length) == 1 &&
       message.count(http::field::transfer_encoding) == 1)) {
    return fail(400, "a request must state the length of its body once");
  }
  const auto expect = message.find(http::field::expect);
  if (expect != message.end() && !impl_->parser.is_done()) {
    if (lower(std::string_view(expect->value().data(), expect->value().size())) != "100-continue") {
      return fail(417, "the only expectation understood is 100-continue");
    }
    return State::kExpectsContinue;
  }
  return State::kNeedMore;
}

HttpParser::State HttpParser::feed(std::string_view input) {
  if (error_status_ != 0) {
    return State::kFailed;
  }
  buffer_ += input;
  return parse();
}

HttpParser::State HttpParser::parse() {
  constexpr size_t kMaxChunkHeaderBytes = 16 * 1024;
  auto& parser = impl_->parser;
  while (true) {
    boost::beast::error_code error;
    size_t used = 0;
    if (!parser.is_done() && !buffer_.empty()) {
      used = parser.put(boost::asio::const_buffer(buffer_.data(), buffer_.size()), error);
      buffer_.erase(0, used);
    }
    if (error && error != http::error::need_more) {
      if (error == http::error::body_limit) {
        return fail(413, fmt::format("the body is larger than {} bytes", limits_.max_body_bytes));
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
      if (const State state = examine_header(); state != State::kNeedMore) {
        return state;
      }
      continue;  // the body, of which nothing was looked at yet
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

HttpRequest HttpParser::take() {
  auto& parser = impl_->parser;
  CHECK(parser.is_done(), "take() before the request is complete");
  HttpRequest request;
  request.keep_alive = parser.keep_alive();
  auto& message = parser.get();
  request.version = static_cast<int>(message.version());
  request.method = std::string(message.method_string().data(), message.method_string().size());
  const std::string_view target(message.target().data(), message.target().size());
  request.path = target.substr(0, target.find('?'));
  for (const auto& field : message) {
    request.headers.emplace_back(lower({field.name_string().data(), field.name_string().size()}),
                                 std::string(field.value().data(), field.value().size()));
  }
  request.body = std::move(message.body());
  impl_ = std::make_unique<Impl>(limits_);
  return request;
}

}  // namespace tandem::api
