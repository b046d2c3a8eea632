#include "api/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace tandem::api {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr std::string_view kComment = ": keep-alive\n\n";

std::string address_of(const asio::ip::tcp::socket& socket) {
  error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  return error ? "-" : fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, ClientPlaces::Place place, IoLoop& loop,
                       ApiContext& context)
    : transport_(std::move(socket), context.tls.get()),
      place_(std::move(place)),
      loop_(loop),
      context_(context),
      parser_(context.options.limits.http),
      client_(address_of(transport_.socket())),
      phase_since_(loop.now()) {
  error_code ignored;
  asio::ip::tcp::socket& own = transport_.socket();
  own.non_blocking(true, ignored);
  own.set_option(asio::ip::tcp::no_delay(true), ignored);
  if (const int32_t bytes = context.options.limits.socket_send_buffer_bytes; bytes > 0) {
    own.set_option(asio::socket_base::send_buffer_size(bytes), ignored);
  }
}

Connection::~Connection() { CHECK(phase_ == Phase::kClosed, "a connection was forgotten open"); }

void Connection::start() { wait_readable(); }

// ---------------------------------------------------------------- reading

void Connection::wait_readable() {
  if (reading_ || peer_ended_ || phase_ == Phase::kClosed) {
    return;
  }
  if (phase_ == Phase::kAnswering &&
      parser_.held_bytes() > context_.options.limits.max_pipelined_bytes) {
    return;  // end_answer() goes on
  }
  reading_ = true;
  transport_.async_wait_readable([self = shared_from_this()](const error_code& error) {
    self->reading_ = false;
    if (!error) {
      self->on_readable();
    }
  });
}

void Connection::on_readable() {
  constexpr int kMostReads = 16;  // then others have their turn
  for (int i = 0; i < kMostReads && phase_ != Phase::kClosed && !peer_ended_; ++i) {
    const std::span<char> scratch = loop_.scratch();
    error_code error;
    const size_t bytes = transport_.read_some(scratch, error);
    if (error == asio::error::would_block || error == asio::error::try_again) {
      break;
    }
    if (error) {
      on_read_end(error);
      return;
    }
    accept_bytes({scratch.data(), bytes});
    if (bytes < scratch.size() && !transport_.encrypted()) {
      break;  // under TLS, what is left may be in memory already: read until nothing is there
    }
  }
  wait_readable();
}

void Connection::on_read_end(const error_code& error) {
  peer_ended_ = true;
  if (transport_.in_handshake()) {
    ++context_.metrics.tls_handshakes_failed;
  }
  const bool only_writing = phase_ == Phase::kAnswering && answer_.complete;
  if (only_writing && error == asio::error::eof) {
    answer_.keep_alive = false;  // it has asked all it wanted; the rest of the answer is on its way
    return;
  }
  close("disconnected");
}

void Connection::accept_bytes(std::string_view bytes) {
  switch (phase_) {
    case Phase::kReading:
      if (!parser_.has_begun()) {
        begun_at_ = loop_.now();
        body_began_at_ = Nanos{0};
      }
      handle(parser_.feed(bytes));
      break;
    case Phase::kAnswering:
      parser_.hold(bytes);
      count_held_bytes();
      break;
    case Phase::kLingering:
    case Phase::kClosed:
      break;
  }
}

void Connection::handle(HttpParser::State state) {
  if (state == HttpParser::State::kExpectsContinue) {
    raw_ += "HTTP/1.1 100 Continue\r\n\r\n";
    flush();
    state = parser_.feed({});
  }
  if (state == HttpParser::State::kComplete) {
    begin(parser_.take());
  } else if (state == HttpParser::State::kFailed) {
    refuse_unread(error_with_status(parser_.error_status(), parser_.error_reason()));
  } else {
    count_held_bytes();
    if (parser_.in_body() && body_began_at_ == Nanos{0}) {
      body_began_at_ = loop_.now();
    }
    if (context_.metrics.request_bytes_held > context_.options.limits.max_request_bytes_held) {
      refuse_unread(refuse({ErrorCode::kUnavailable,
                            "the requests being sent fill the server's memory for them; try again "
                            "later",
                            ""},
                           "request_memory", context_));
    }
  }
}

// Ends a request that was not read to its end, and the connection with it.
void Connection::refuse_unread(HttpResponse response) {
  answer_ = Answer{.started = begun_at_};
  answer_.request.method = answer_.request.path = "-";
  answer_.names.request_id = loop_.new_id();
  phase_ = Phase::kAnswering;
  ++context_.answering;
  parser_.discard();
  count_held_bytes();
  respond(std::move(response));
}

// Bytes of requests, read and not answered yet, are bounded over all connections.
void Connection::count_held_bytes() {
  const int64_t now = phase_ == Phase::kClosed
                          ? 0
                          : static_cast<int64_t>(parser_.unread_bytes()) + answer_.body_bytes_held;
  context_.metrics.request_bytes_held += now - held_bytes_;
  held_bytes_ = now;
}

// ---------------------------------------------------------------- answering

void Connection::begin(HttpRequest request) {
  phase_ = Phase::kAnswering;
  phase_since_ = loop_.now();
  ++context_.answering;
  answer_ = Answer{};
  answer_.started = phase_since_;
  answer_.names = names_of(request, loop_.new_id());
  answer_.request_bytes = answer_.body_bytes_held = std::ssize(request.body);
  answer_.keep_alive = request.keep_alive;
  answer_.route = find_route(request.path);
  answer_.request = std::move(request);
  count_held_bytes();
  route_request();
}

void Connection::route_request() {
  if (auto preflight = context_.cors.preflight(answer_.request)) {
    respond(std::move(*preflight));
    return;
  }
  Access access = check_access(answer_.request, context_);
  if (access.refusal) {
    respond(std::move(*access.refusal));
    return;
  }
  if (auto refusal = check_method(answer_.request, answer_.route)) {
    respond(std::move(*refusal));
    return;
  }
  if (access.key) {
    answer_.grant = access.key->grant;
    if (context_.keys.count() > 1) {
      answer_.tenant = fmt::format("key{}", access.key->number);
    }
  }
  switch (answer_.route->id) {
    case RouteId::kCompletions:
      begin_generation(openai::Endpoint::kCompletions);
      return;
    case RouteId::kChatCompletions:
      begin_generation(openai::Endpoint::kChat);
      return;
    default:
      break;
  }
  if (answer_.request.body.size() <= context_.options.inline_parse_bytes) {
    respond(answer(answer_.request, *answer_.route, context_));
    return;
  }
  parsing_aside_ = true;
  loop_.aside([self = shared_from_this(), request = answer_.request]() -> std::function<void()> {
    HttpResponse response = answer(request, *self->answer_.route, self->context_);
    return [self, response = std::move(response)] {
      self->parsing_aside_ = false;
      self->respond(response);
    };
  });
}

void Connection::begin_generation(openai::Endpoint endpoint) {
  if (const std::string_view reason = refusal_reason(context_); !reason.empty()) {
    respond(refuse({ErrorCode::kUnavailable,
                    fmt::format("the server is {} and takes no requests for text now", reason), ""},
                   reason, context_));
    return;
  }
  std::string body = std::move(answer_.request.body);
  if (body.size() <= context_.options.inline_parse_bytes) {
    start_job(openai::parse_generation(endpoint, body, context_.parse));
    return;
  }
  parsing_aside_ = true;
  loop_.aside([self = shared_from_this(), endpoint, body = std::move(body)] {
    auto parsed = std::make_shared<Result<openai::GenerationRequest>>(
        openai::parse_generation(endpoint, body, self->context_.parse));
    return std::function<void()>([self, parsed] {
      self->parsing_aside_ = false;
      self->start_job(std::move(*parsed));
    });
  });
}

void Connection::start_job(Result<openai::GenerationRequest> parsed) {
  if (phase_ == Phase::kClosed) {
    return;  // the client left while its prompt was tokenized
  }
  answer_.body_bytes_held = 0;
  count_held_bytes();
  std::vector<uint64_t> tags;
  const GenerationJob::Destination destination{
      .sink = loop_.sink(),
      .make_tag = [&](size_t prompt) { return tags.emplace_back(loop_.add_tag(*this, prompt)); }};
  auto submitted = GenerationJob::submit(std::move(parsed),
                                         {.request_id = answer_.names.request_id,
                                          .tenant = answer_.tenant,
                                          .grant = answer_.grant,
                                          .request = answer_.request},
                                         destination, context_);
  if (auto* refusal = std::get_if<HttpResponse>(&submitted)) {
    for (const uint64_t tag : tags) {
      loop_.remove_tag(tag);
    }
    respond(std::move(*refusal));
    return;
  }
  job_ = std::move(std::get<std::unique_ptr<GenerationJob>>(submitted));
  if (job_->streams()) {
    begin_stream();
  }
}

void Connection::begin_stream() {
  HttpResponse response{.content_type = "text/event-stream; charset=utf-8"};
  response.headers.emplace_back("Cache-Control", "no-cache");
  response.headers.emplace_back("X-Accel-Buffering", "no");
  if (answer_.request.version == 10) {
    answer_.framing = BodyFraming::kToClose;
    answer_.keep_alive = false;
  } else {
    answer_.framing = BodyFraming::kChunked;
  }
  answer_.keep_alive = answer_.keep_alive && !context_.draining;
  answer_.status = response.status;
  add_common_headers(response);
  raw_ += response_head(response, answer_.framing, answer_.keep_alive);
  flush();
}

void Connection::take(size_t prompt, std::span<TokenEvent> events) {
  if (job_ == nullptr) {
    return;
  }
  const size_t before = stream_.size();
  job_->take(prompt, events, stream_);
  context_.metrics.unsent_bytes += static_cast<int64_t>(stream_.size() - before);
  answer_.response_bytes += static_cast<int64_t>(stream_.size() - before);
  if (stream_.size() > context_.options.limits.max_unsent_bytes) {
    ++context_.metrics.slow_readers_cut;
    close("slow_reader");
  } else if (job_->ended()) {
    end_job();
  }
}

void Connection::end_job() {
  if (job_->streams()) {
    answer_.complete = true;
    record(job_->failed() ? "failed" : "done");
    drop_job();
    return;
  }
  HttpResponse response = job_->answer();
  respond(std::move(response));
}

void Connection::drop_job() {
  if (job_ == nullptr) {
    return;
  }
  for (const uint64_t tag : job_->tags()) {
    loop_.remove_tag(tag);
  }
  job_.reset();
}

void Connection::add_common_headers(HttpResponse& response) const {
  response.headers.emplace_back("X-Request-Id", answer_.names.request_id);
  if (!answer_.names.correlation_id.empty()) {
    response.headers.emplace_back("X-Correlation-ID", answer_.names.correlation_id);
  }
  for (auto& header : context_.cors.headers(answer_.request)) {
    response.headers.push_back(std::move(header));
  }
}

void Connection::respond(HttpResponse response) {
  if (phase_ != Phase::kAnswering) {
    return;
  }
  answer_.status = response.status;
  answer_.keep_alive = answer_.keep_alive && !context_.draining && !peer_ended_;
  answer_.framing = BodyFraming::kLength;
  answer_.response_bytes = std::ssize(response.body);
  add_common_headers(response);
  raw_ += response_head(response, BodyFraming::kLength, answer_.keep_alive);
  if (answer_.request.method != "HEAD") {
    raw_ += response.body;
  }
  answer_.complete = true;
  record(job_ != nullptr && job_->failed() ? "failed" : "done");
  drop_job();
  flush();
}

void Connection::record(std::string_view outcome) {
  const Nanos duration = loop_.now() - answer_.started;
  context_.metrics.answered(
      {.handler = answer_.route == nullptr ? std::string_view("none") : answer_.route->path,
       .method = answer_.request.method,
       .status = answer_.status,
       .duration = duration,
       .request_bytes = answer_.request_bytes,
       .response_bytes = answer_.response_bytes});
  AccessRecord line{.method = answer_.request.method,
                    .path = answer_.request.path,
                    .outcome = outcome,
                    .client = client_,
                    .status = answer_.status,
                    .duration = duration,
                    .prompt_tokens = {},
                    .completion_tokens = {}};
  if (job_ != nullptr) {
    const openai::Usage usage = job_->usage();
    line.prompt_tokens = usage.prompt_tokens;
    line.completion_tokens = usage.completion_tokens;
  }
  const log::Fields fields = access_fields(line, answer_.names);
  log::info_fields(log::is_json() ? "access" : access_line(fields), fields);
}

void Connection::tick(Nanos now) {
  const ServerLimits& limits = context_.options.limits;
  if (writing_ && now - write_began_ > limits.write_timeout) {
    ++context_.metrics.slow_readers_cut;
    close("slow_reader");
    return;
  }
  switch (phase_) {
    case Phase::kReading:
      tick_reading(now);
      break;
    case Phase::kAnswering:
      if (job_ != nullptr && job_->streams() && !writing_ &&
          now - last_output_ >= context_.options.keep_alive_comment) {
        stream_ += kComment;
        context_.metrics.unsent_bytes += std::ssize(kComment);
        flush();
      }
      break;
    case Phase::kLingering:
      if (now - phase_since_ > limits.linger_timeout) {
        close("done");
      }
      break;
    case Phase::kClosed:
      break;
  }
}

void Connection::tick_reading(Nanos now) {
  const ServerLimits& limits = context_.options.limits;
  if (parser_.has_begun()) {
    const bool in_body = body_began_at_ != Nanos{0};
    const bool late = in_body ? now - body_began_at_ > limits.body_timeout
                              : now - begun_at_ > limits.header_timeout;
    if (late) {
      ++context_.metrics.requests_timed_out;
      refuse_unread(
          error_with_status(408, in_body ? "the body of the request did not arrive in time"
                                         : "the headers of the request did not arrive in time"));
    }
    return;
  }
  // When places run short, connections that do nothing make room.
  const bool crowded = context_.metrics.connections > limits.max_connections / 4 * 3;
  const Nanos patience = transport_.in_handshake() ? limits.header_timeout
                         : crowded ? std::min(limits.idle_timeout, limits.crowded_idle_timeout)
                                   : limits.idle_timeout;
  if (now - phase_since_ > patience || context_.draining) {
    ++context_.metrics.idle_closed;
    close("idle");
  }
}

void Connection::close(std::string_view outcome) {
  if (phase_ == Phase::kClosed) {
    return;
  }
  const std::shared_ptr<Connection> self = shared_from_this();
  if (phase_ == Phase::kAnswering) {
    if (!answer_.complete) {
      if (outcome == "disconnected" && (job_ != nullptr || parsing_aside_)) {
        ++context_.metrics.disconnect_cancels;
      }
      if (answer_.status == 0) {
        constexpr int kClientClosedRequest = 499;
        answer_.status = kClientClosedRequest;
      }
      record(outcome);
    }
    --context_.answering;
  }
  phase_ = Phase::kClosed;
  count_held_bytes();
  --context_.metrics.connections;
  drop_job();
  context_.metrics.unsent_bytes -= std::ssize(stream_);
  stream_.clear();
  raw_.clear();
  transport_.close();
  loop_.forget(*this);
}

}  // namespace tandem::api
