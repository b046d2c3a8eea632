#include "loadgen/http_response.h"

#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

namespace tandem::loadgen {

namespace http = boost::beast::http;
using boost::system::error_code;

class HttpResponse::Parser final : public http::basic_parser<false> {
 public:
  Parser() {
    constexpr uint32_t kMostHeaderBytes = 64 * 1024;
    header_limit(kMostHeaderBytes);
    body_limit(boost::none);
    eager(true);
  }
  int status = 0;
  std::string content_type;
  const std::function<void(std::string_view)>* on_body = nullptr;

 private:
  using View = boost::beast::string_view;
  void on_request_impl(http::verb, View, View, int, error_code&) override {}
  void on_response_impl(int code, View, int, error_code&) override { status = code; }
  void on_field_impl(http::field name, View, View value, error_code&) override {
    if (name == http::field::content_type) {
      content_type.assign(value.data(), value.size());
    }
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(View body, error_code&) override { return give(body); }
  void on_chunk_header_impl(uint64_t, View, error_code&) override {}
  std::size_t on_chunk_body_impl(uint64_t, View body, error_code&) override { return give(body); }
  void on_finish_impl(error_code&) override {}

  std::size_t give(View body) {
    if (on_body != nullptr && !body.empty()) {
      (*on_body)(std::string_view(body.data(), body.size()));
    }
    return body.size();
  }
};

HttpResponse::HttpResponse() : parser_(std::make_unique<Parser>()) {}
HttpResponse::~HttpResponse() = default;

void HttpResponse::reset() {
  parser_ = std::make_unique<Parser>();
  held_.clear();
}

bool HttpResponse::has_begun() const { return parser_->got_some() || !held_.empty(); }
bool HttpResponse::has_header() const { return parser_->is_header_done(); }
bool HttpResponse::is_complete() const { return parser_->is_done(); }
int HttpResponse::status() const { return parser_->status; }
bool HttpResponse::keep_alive() const { return parser_->keep_alive(); }
const std::string& HttpResponse::content_type() const { return parser_->content_type; }

Status HttpResponse::feed(std::string_view bytes,
                          const std::function<void(std::string_view)>& on_body) {
  const bool joined = !held_.empty();
  if (joined) {
    held_ += bytes;
    bytes = held_;
  }
  parser_->on_body = &on_body;
  std::string rest;
  Status status;
  while (!bytes.empty()) {
    if (parser_->is_done()) {
      status = invalid_argument("the server sent more than its answer");
      break;
    }
    error_code error;
    const size_t taken = parser_->put(boost::asio::buffer(bytes.data(), bytes.size()), error);
    bytes.remove_prefix(taken);
    if (error == http::error::need_more) {
      rest = bytes;
      break;
    }
    if (error) {
      status = invalid_argument(fmt::format("the answer is not HTTP/1.1: {}", error.message()));
      break;
    }
  }
  parser_->on_body = nullptr;
  held_ = std::move(rest);
  return status;
}

Status HttpResponse::end_of_stream() {
  error_code error;
  if (parser_->got_some()) {
    parser_->put_eof(error);
  }
  return !error && parser_->is_done()
             ? Status{}
             : Status{Error{ErrorCode::kIo, "the connection ended before the answer did", {}}};
}

}  // namespace tandem::loadgen
