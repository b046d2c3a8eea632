#include "api/http_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
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

struct HttpParser::Impl {
  explicit Impl(const HttpLimits& limits) {
    parser.header_limit(limits.max_header_bytes);
    parser.body_limit(limits.max_body_bytes);
  }
  http::request_parser<http::string_body> parser;
  bool header_examined = false;
  bool skips_body = false;
};

HttpParser::HttpParser(const HttpLimits& limits)
    : limits_(limits), impl_(std::make_unique<Impl>(limits)) {}
HttpParser::~HttpParser() = default;

bool HttpParser::has_begun() const { return impl_->parser.got_some() || !buffer_.empty(); }

bool HttpParser::in_body() const { return impl_->header_examined; }

size_t HttpParser::body_bytes() const { return impl_->parser.get().body().size(); }

void HttpParser::skip_body() {
  impl_->skips_body = true;
  trim_body();
}

// A skipped body is thrown away as it comes. One that comes in chunks gets its room at once:
// growing step by step would copy tens of megabytes at a time. One whose length is known has it.
void HttpParser::trim_body() {
  constexpr size_t kSmallBytes = 1 << 19;
  constexpr uint64_t kMaxReservedBytes = 64 << 20;
  std::string& body = impl_->parser.get().body();
  if (impl_->skips_body) {
    std::string().swap(body);
  } else if (impl_->parser.chunked() && body.size() > kSmallBytes &&
             body.capacity() < kMaxReservedBytes) {
    body.reserve(std::min(limits_.max_body_bytes, kMaxReservedBytes));
  }
}

std::string HttpParser::discard() {
  std::string body = std::move(impl_->parser.get().body());
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
  return message.version() == 11 && message.count(http::field::expect) > 0 &&
         !impl_->parser.is_done();
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
      trim_body();
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
  request.path = path_of(view(message.target()));
  for (const auto& field : message) {
    request.headers.emplace_back(lower(view(field.name_string())),
                                 std::string(view(field.value())));
  }
  return request;
}

std::string HttpParser::take_body() {
  CHECK(impl_->parser.is_done(), "take_body() before the request is complete");
  std::string body = std::move(impl_->parser.get().body());
  impl_ = std::make_unique<Impl>(limits_);
  return body;
}

}  // namespace tandem::api
