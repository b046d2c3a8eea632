#include "api/connection.h"
#include "api/batch_routes.h"

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
    : transport_(std::move(socket)),
      place_(std::move(place)),
      loop_(loop),
      context_(context),
      parser_(context.options.limits.http),
      client_(address_of(transport_.socket())),
      requester_(client_.substr(0, client_.rfind(':'))),
      unsent_(context.metrics.unsent_bytes),
      kept_(context.metrics.unsent_bytes),
      phase_since_(loop.now()),
      body_held_(context.metrics.request_bytes_held) {
  error_code ignored;
  asio::ip::tcp::socket& own = transport_.socket();
  own.non_blocking(true, ignored);
  if (const auto tls = context.tls(); tls != nullptr) {
    transport_.secure(tls->new_session());
  }
  own.set_option(asio::ip::tcp::no_delay(true), ignored);
  if (const int32_t bytes = context.options.limits.socket_send_buffer_bytes; bytes > 0) {
    own.set_option(asio::socket_base::send_buffer_size(bytes), ignored);
  }
}

Connection::~Connection() { CHECK(phase_ == Phase::kClosed, "a connection was forgotten open"); }

void Connection::start() { wait_readable(); }

// ---------------------------------------------------------------- reading

bool Connection::holds_enough() const {
  return phase_ == Phase::kAnswering
             ? parser_.held_bytes() > context_.options.limits.max_pipelined_bytes
             : phase_ == Phase::kReading && incoming_is_full();
}

void Connection::wait_readable() {
  if (reading_ || peer_ended_ || phase_ == Phase::kClosed || holds_enough()) {
    return;  // holds_enough: end_answer() goes on, or end_incoming_piece()
  }
  reading_ = true;
  transport_.async_wait_readable([self = shared_from_this()](const error_code& error) {
    self->reading_ = false;
    self->loop_.run_deliveries();
    if (!error) {
      self->on_readable();
    }
  });
}

void Connection::on_readable() {
  constexpr size_t kMaxBytesATurn = 256 * 1024;  // then other connections have their turn
  size_t taken = 0;
  const auto may_go_on = [&] {
    return taken < kMaxBytesATurn && !(taken > 0 && loop_.has_deliveries());
  };
  while (may_go_on() && phase_ != Phase::kClosed && !peer_ended_ && !holds_enough()) {
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
    loop_.count_read(bytes);
    accept_bytes({scratch.data(), bytes});
    taken += bytes;
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
      break;
    case Phase::kLingering:
    case Phase::kClosed:
      break;
  }
}

void Connection::handle(HttpParser::State state) {
  if (state == HttpParser::State::kHeaders) {
    if (!accept_head()) {
      return;
    }
    state = parser_.feed({});
  }
  if (incoming_ != nullptr && state != HttpParser::State::kFailed) {
    receive(state);
  } else if (state == HttpParser::State::kComplete) {
    std::string body = parser_.take_body();
    body_held_.set(0);
    begin_answer();
    route_request(std::move(body));
  } else if (state == HttpParser::State::kFailed) {
    constexpr int kTooLarge = 413;
    refuse_unread(incoming_ != nullptr && parser_.error_status() == kTooLarge
                      ? batch_error(context_.options.batches->too_large(), context_)
                      : error_with_status(parser_.error_status(), parser_.error_reason()));
  } else if (parser_.in_body()) {
    body_held_.set(static_cast<int64_t>(parser_.body_bytes()));
    if (body_began_at_ == Nanos{0}) {
      body_began_at_ = loop_.now();
    }
    // Bodies are bounded over all connections. Only those whose headers were accepted count.
    if (body_held_.bytes() > 0 &&
        context_.metrics.request_bytes_held > context_.options.limits.max_request_bytes_held) {
      refuse_unread(refuse({ErrorCode::kUnavailable,
                            "the requests being sent fill the server's memory for them; try again "
                            "later",
                            ""},
                           "request_memory", context_));
    }
  }
}

void Connection::forget_request() {
  drop_files();
  loop_.dispose(parser_.discard());
  body_held_.set(0);
}

// Ends a request that was not read to its end, and the connection with it.
void Connection::refuse_unread(HttpResponse response) {
  if (answer_.names.request_id.empty()) {  // its headers are not known
    answer_.request.method = answer_.request.path = "-";
    answer_.names.request_id = loop_.new_id();
  }
  answer_.keep_alive = false;
  forget_request();
  begin_answer();
  answer_.started = begun_at_;
  respond(std::move(response));
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
  if (answer_.route != nullptr && answer_.route->id == RouteId::kStatus && answer_.status == 200 &&
      std::exchange(status_logged_, true)) {
    return;  // every open page asks once a second: the first of a connection is enough
  }
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
  // When answers fill their memory, readers that take nothing make room.
  const bool crowded = answers_are_crowded() &&
                       unsent_.bytes() > static_cast<int64_t>(limits.max_small_answer_bytes);
  const Nanos patience =
      crowded ? std::min(limits.write_timeout, limits.crowded_write_timeout) : limits.write_timeout;
  if (writing_ && now - write_began_ > patience) {
    ++context_.metrics.slow_readers_cut;
    close("slow_reader");
    return;
  }
  switch (phase_) {
    case Phase::kReading:
      tick_reading(now);
      break;
    case Phase::kAnswering:
      if (answer_.streams && !answer_.complete && !writing_ &&
          now - last_output_ >= context_.options.keep_alive_comment) {
        append_output(std::string(kComment));
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
  if (incoming_ != nullptr) {
    tick_incoming(now);
  }
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
      if (outcome == "disconnected" && (job_ != nullptr || ticket_)) {
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
  forget_request();
  --context_.metrics.connections;
  if (ticket_) {
    loop_.withdraw(*ticket_, self);
  }
  drop_job();
  for (std::string& text : std::exchange(ahead_, {})) {
    loop_.dispose(std::move(text));
  }
  ahead_bytes_ = 0;
  loop_.dispose(std::exchange(stream_, {}));
  raw_.clear();
  unsent_.set(std::ssize(stream_out_));  // until its write has ended
  transport_.close();
  loop_.forget(*this);
}

}  // namespace tandem::api
