// The part of Connection that answers: by the headers, by routes, by generations; here or beside
// the loop.
#include <fmt/format.h>

#include <iterator>
#include <utility>
#include <variant>

#include "api/batch_routes.h"
#include "api/connection.h"

namespace tandem::api {

namespace {

// The body, as long as its headers say, is among the bytes that came with them (or is chunked).
bool body_may_be_here(const HttpRequest& head, size_t held_bytes) {
  return announced_body_bytes(head) <= held_bytes;
}

}  // namespace

void Connection::hold(size_t prompt, std::span<TokenEvent> events, HeldEvents& held) {
  held.emplace_back(prompt, std::vector<TokenEvent>(std::move_iterator(events.begin()),
                                                    std::move_iterator(events.end())));
}

// A generation while its events are taken beside the loop.
struct Connection::Delivery {
  std::unique_ptr<GenerationJob> job;
  HeldEvents events;
  std::string text;
  std::optional<HttpResponse> answer;  // once it has ended, unless it streams
};

// False: the request is refused, and answered as far as it was read. Only a refusal whose body is
// there already leaves the connection open: else the client may send the rest or not.
bool Connection::accept_head() {
  answer_.request = parser_.head();
  answer_.names = names_of(answer_.request, loop_.new_id());
  answer_.keep_alive = answer_.request.keep_alive;
  answer_.route = find_route(answer_.request.path, context_.options);
  if (auto refusal = refuse_by_head()) {
    parser_.skip_body();
    const bool whole = body_may_be_here(answer_.request, parser_.held_bytes()) &&
                       parser_.feed({}) == HttpParser::State::kComplete;
    if (whole) {
      static_cast<void>(parser_.take_body());
    } else {
      forget_request();
    }
    answer_.keep_alive = answer_.keep_alive && whole;
    begin_answer();
    respond(std::move(*refusal));
    return false;
  }
  if (!takes_body(*answer_.route)) {
    parser_.skip_body();
  }
  if (parser_.expects_continue()) {
    raw_ += "HTTP/1.1 100 Continue\r\n\r\n";
    flush();
  }
  return true;
}

std::optional<HttpResponse> Connection::refuse_by_head() {
  if (auto preflight = context_.cors.preflight(answer_.request, context_.keys.required())) {
    return preflight;
  }
  Access access = check_access(answer_.request, context_);
  if (access.refusal) {
    return std::move(access.refusal);
  }
  if (auto refusal = check_request(answer_.request, answer_.route)) {
    return refusal;
  }
  if (access.key) {
    answer_.grant = access.key->grant;
    requester_ = tenant_of(*access.key);
    if (context_.keys.count() > 1) {
      answer_.tenant = requester_;
    }
  }
  answer_.owner = access.key ? access.key->owner : owner_without_key();
  return is_batch_route(*answer_.route) ? begin_batch_route() : std::nullopt;
}

void Connection::begin_answer() {
  phase_ = Phase::kAnswering;
  phase_since_ = answer_.started = loop_.now();
  ++context_.answering;
}

void Connection::route_request(std::string body) {
  answer_.request_bytes = std::ssize(body);
  const RouteId id = answer_.route->id;
  if (id == RouteId::kCompletions || id == RouteId::kChatCompletions) {
    begin_generation(std::move(body));
  } else if (is_download(*answer_.route)) {
    begin_download();
  } else if (is_batch_route(*answer_.route)) {
    answer_from_disk(std::move(body));
  } else if (body.size() > context_.options.inline_parse_bytes) {
    answer_aside(std::move(body));
  } else {
    answer_.request.body = std::move(body);
    respond(answer(answer_.request, *answer_.route, context_));
  }
}

// Runs `work` beside the loop, then `done` on it unless the connection was closed meanwhile; what
// they own may be large and is then freed beside the loop. Without a ticket_ afterwards neither
// will run; where the bound applies, the request has been refused.
void Connection::aside(const IoLoop::JobTerms& terms, std::function<void()> work,
                       std::function<void()> done) {
  ticket_ =
      loop_.aside(requester_, terms, std::move(work),
                  [self = shared_from_this(), done = std::move(done), pool = terms.pool]() mutable {
                    self->ticket_.reset();
                    if (self->phase_ == Phase::kClosed) {
                      using Done = std::function<void()>;
                      self->loop_.dispose(std::make_shared<Done>(std::move(done)), pool);
                      return;
                    }
                    done();
                  });
  if (ticket_ || terms.bound == SideThreads::Bound::kIgnored) {
    return;
  }
  const bool disk = terms.pool == IoLoop::Pool::kDisk;
  respond(refuse({ErrorCode::kUnavailable,
                  disk ? "too many requests wait for the server's disk; try again later"
                       : "too many long requests wait to be read by the server; try again later",
                  ""},
                 disk ? "disk_requests" : "long_requests", context_));
}

void Connection::answer_aside(std::string body) {
  struct Work {
    HttpRequest request;
    CountedBytes held;
    HttpResponse response;
  };
  const int64_t bytes = std::ssize(body);
  auto shared = std::make_shared<Work>(Work{
      .request = {.method = answer_.request.method, .path = answer_.request.path, .headers = {}},
      .held = CountedBytes(context_.metrics.request_bytes_held, bytes),
      .response = {}});
  shared->request.body = std::move(body);
  aside(
      {.cost = bytes},
      [shared, route = answer_.route, &context = context_] {
        shared->response = answer(shared->request, *route, context);
        std::string().swap(shared->request.body);
        shared->held.set(0);
      },
      [this, shared] { respond(std::move(shared->response)); });
  if (!ticket_) {
    loop_.dispose(std::move(shared));
  }
}

void Connection::begin_generation(std::string body) {
  if (const std::string_view reason = refusal_reason(context_); !reason.empty()) {
    loop_.dispose(std::move(body));
    respond(
        refuse({ErrorCode::kUnavailable, refusal_message(reason, context_), ""}, reason, context_));
    return;
  }
  const openai::Endpoint endpoint = answer_.route->id == RouteId::kChatCompletions
                                        ? openai::Endpoint::kChat
                                        : openai::Endpoint::kCompletions;
  if (body.size() <= context_.options.inline_parse_bytes) {
    start_job(GenerationJob::prepare(endpoint, body, context_));
    return;
  }
  struct Work {
    std::string body;
    CountedBytes held;
    std::optional<Preparation> prepared;
  };
  const int64_t bytes = std::ssize(body);
  auto shared =
      std::make_shared<Work>(Work{.body = std::move(body),
                                  .held = CountedBytes(context_.metrics.request_bytes_held, bytes),
                                  .prepared = {}});
  aside(
      {.cost = bytes},
      [shared, endpoint, &context = context_] {
        shared->prepared = GenerationJob::prepare(endpoint, shared->body, context);
        std::string().swap(shared->body);
        shared->held.set(0);
      },
      [this, shared] { start_job(std::move(*shared->prepared)); });
  if (!ticket_) {
    loop_.dispose(std::move(shared));
  }
}

void Connection::start_job(Preparation prepared) {
  if (auto* refusal = std::get_if<HttpResponse>(&prepared)) {
    respond(std::move(*refusal));
    return;
  }
  auto& generation = std::get<PreparedGeneration>(prepared);
  for (size_t prompt = 0; prompt < generation.requests.size(); ++prompt) {
    tags_.push_back(loop_.add_tag(*this, prompt));
  }
  const size_t bytes = generation.prompt_bytes();
  if (bytes > context_.options.inline_submit_bytes) {
    submit_aside(std::move(generation), static_cast<int64_t>(bytes));
    return;
  }
  begin_job(GenerationJob::submit(std::move(generation),
                                  {.request_id = answer_.names.request_id,
                                   .tenant = answer_.tenant,
                                   .grant = answer_.grant,
                                   .request = answer_.request},
                                  {.sink = loop_.sink(), .tags = tags_}, context_));
}

// Engines hash and copy prompts when they accept them. Events that come before the job is here wait
// for it.
void Connection::submit_aside(PreparedGeneration prepared, int64_t bytes) {
  struct Work {
    PreparedGeneration prepared;
    std::string request_id;
    std::string tenant;
    ServiceGrant grant;
    HttpRequest request;
    std::vector<uint64_t> tags;
    SubmittedGeneration submitted;
  };
  auto shared = std::make_shared<Work>(Work{.prepared = std::move(prepared),
                                            .request_id = answer_.names.request_id,
                                            .tenant = answer_.tenant,
                                            .grant = answer_.grant,
                                            .request = answer_.request,
                                            .tags = tags_,
                                            .submitted = {}});
  job_is_aside_ = true;
  aside(
      {.cost = bytes, .bound = SideThreads::Bound::kIgnored},
      [shared, sink = loop_.sink(), &context = context_] {
        shared->submitted = GenerationJob::submit(std::move(shared->prepared),
                                                  {.request_id = shared->request_id,
                                                   .tenant = shared->tenant,
                                                   .grant = shared->grant,
                                                   .request = shared->request},
                                                  {.sink = sink, .tags = shared->tags}, context);
      },
      [this, shared] {
        job_is_aside_ = false;
        begin_job(std::move(shared->submitted));
        take_held();
        flush();
      });
}

void Connection::begin_job(SubmittedGeneration submitted) {
  if (auto* refusal = std::get_if<HttpResponse>(&submitted)) {
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
  answer_.streams = true;
  answer_.keep_alive = answer_.keep_alive && !context_.draining;
  answer_.status = response.status;
  add_common_headers(response);
  raw_ += response_head(response, answer_.framing, answer_.keep_alive);
  flush();
}

// Closes the connection if its client reads too slowly. To be called before the next events are
// added: only what waits already counts, so one large answer alone is never too much, and the piece
// that is being written is allowed for. Returns true if the connection was closed.
bool Connection::cut_slow_reader() {
  const ServerLimits& limits = context_.options.limits;
  const size_t waiting = waiting_bytes();
  const bool behind = waiting > limits.max_unsent_bytes + stream_out_.size();
  const bool in_the_way = waiting > limits.max_small_answer_bytes &&
                          context_.metrics.unsent_bytes > limits.max_answer_bytes_held;
  if (behind || in_the_way) {
    ++context_.metrics.slow_readers_cut;
    close("slow_reader");
  }
  return behind || in_the_way;
}

void Connection::take(size_t prompt, std::span<TokenEvent> events) {
  if (job_is_aside_) {
    hold(prompt, events, events_held_);
    return;
  }
  if (job_ == nullptr || cut_slow_reader()) {
    return;
  }
  const size_t prompt_bytes = job_->prompt_bytes_of(prompt, events);
  if (prompt_bytes > context_.options.inline_answer_bytes) {
    HeldEvents taken;
    hold(prompt, events, taken);
    deliver_aside(static_cast<int64_t>(prompt_bytes), std::move(taken));
    return;
  }
  const size_t before = stream_.size();
  job_->take(prompt, events, stream_);
  const auto bytes = static_cast<int64_t>(stream_.size() - before);
  unsent_.set(unsent_.bytes() + bytes);
  answer_.response_bytes += bytes;
  if (keep_within_memory() && job_->ended()) {
    end_job();
  }
}

// Counts what is kept of a whole answer. False: there is no memory for more of it, and it was
// refused.
bool Connection::keep_within_memory() {
  const ServerLimits& limits = context_.options.limits;
  const int64_t more = job_->kept_bytes() - kept_.bytes();
  kept_.set(job_->kept_bytes());
  if (more == 0 || kept_.bytes() <= static_cast<int64_t>(limits.max_small_answer_bytes) ||
      context_.metrics.unsent_bytes <= limits.max_answer_bytes_held) {
    return true;
  }
  respond(refuse_for_memory());
  return false;
}

HttpResponse Connection::refuse_for_memory() {
  return refuse(
      {ErrorCode::kUnavailable,
       "the answers that wait for their readers or are being made fill the server's memory for "
       "them (--max-answer-bytes); try again later, or ask for less",
       ""},
      "answer_memory", context_);
}

// Takes events, and writes the answer if it has ended with them, beside the loop.
void Connection::deliver_aside(int64_t bytes, HeldEvents events) {
  auto delivery = std::make_shared<Delivery>(
      Delivery{.job = std::move(job_), .events = std::move(events), .text = {}, .answer = {}});
  job_is_aside_ = true;
  constexpr int64_t kBytesOfCost = 16;  // an answer is written faster than a body is parsed
  aside(
      {.cost = bytes / kBytesOfCost, .bound = SideThreads::Bound::kIgnored},
      [delivery] {
        GenerationJob& job = *delivery->job;
        for (auto& [of, taken] : std::exchange(delivery->events, {})) {
          job.take(of, taken, delivery->text);
        }
        if (job.ended() && !job.streams()) {
          delivery->answer = job.answer();
        }
      },
      [this, delivery] { end_delivery(*delivery); });
}

void Connection::end_delivery(Delivery& delivery) {
  job_is_aside_ = false;
  job_ = std::move(delivery.job);
  answer_.response_bytes += std::ssize(delivery.text);
  append_output(std::move(delivery.text));
  if (delivery.answer) {
    respond(std::move(*delivery.answer));
    return;
  }
  if (keep_within_memory() && job_->ended()) {
    end_job();
  }
  flush();  // first, so that this piece does not count as backlog for the events that follow
  take_held();
  flush();
}

// If many have collected, a side thread turns them into text again, until it has caught up.
void Connection::take_held() {
  constexpr int64_t kBytesOfEvent = 256;  // a streamed chunk, about
  HeldEvents taken = std::exchange(events_held_, {});
  size_t count = 0;
  for (const auto& [prompt, events] : taken) {
    count += events.size();
  }
  if (count > context_.options.inline_events && job_ != nullptr) {
    if (!cut_slow_reader()) {
      deliver_aside(static_cast<int64_t>(count) * kBytesOfEvent, std::move(taken));
      return;
    }
  }
  for (auto& [prompt, events] : taken) {
    take(prompt, events);
  }
  if (job_ == nullptr && !job_is_aside_) {
    dispose(std::move(taken));  // the answer has ended before them
  }
}

// Frees the events; many steps beside the loop.
void Connection::dispose(HeldEvents held) {
  constexpr size_t kManySteps = 16;
  if (held.size() > kManySteps) {
    loop_.dispose(std::make_shared<HeldEvents>(std::move(held)));
    return;
  }
  for (auto& [prompt, events] : held) {
    loop_.dispose(std::move(events));
  }
}

void Connection::end_job() {
  if (job_->streams()) {
    answer_.complete = true;
    record(job_->failed() ? "failed" : "done");
    drop_job();
  } else if (job_->answer_bytes() > context_.options.inline_answer_bytes) {
    deliver_aside(static_cast<int64_t>(job_->answer_bytes()), {});
  } else {
    respond(job_->answer());
  }
}

void Connection::drop_job() {
  for (const uint64_t tag : tags_) {
    loop_.remove_tag(tag);
  }
  tags_.clear();
  dispose(std::exchange(events_held_, {}));
  if (job_ != nullptr) {
    job_->end();
    if (job_->held_bytes() > context_.options.inline_answer_bytes) {
      loop_.dispose(std::shared_ptr<GenerationJob>(std::move(job_)));
    }
  }
  job_.reset();
  kept_.set(0);
}

void Connection::add_common_headers(HttpResponse& response) const {
  response.headers.emplace_back("Date", loop_.date());
  response.headers.emplace_back("X-Request-Id", answer_.names.request_id);
  if (!answer_.names.correlation_id.empty()) {
    response.headers.emplace_back("X-Correlation-ID", answer_.names.correlation_id);
  }
  for (auto& header : context_.cors.headers(answer_.request, context_.keys.required())) {
    response.headers.push_back(std::move(header));
  }
}

bool Connection::answers_are_crowded() const {
  return context_.metrics.unsent_bytes > context_.options.limits.max_answer_bytes_held / 4 * 3;
}

// A large answer needs room among those that wait for their readers.
void Connection::respond(HttpResponse response) {
  const ServerLimits& limits = context_.options.limits;
  kept_.set(0);  // it became the response
  if (response.body.size() > limits.max_small_answer_bytes &&
      context_.metrics.unsent_bytes + std::ssize(response.body) > limits.max_answer_bytes_held) {
    loop_.dispose(std::move(response.body));
    response = refuse_for_memory();
  }
  answer_.status = response.status;
  answer_.keep_alive = answer_.keep_alive && !context_.draining && !peer_ended_;
  answer_.framing = BodyFraming::kLength;
  answer_.response_bytes = std::ssize(response.body);
  add_common_headers(response);
  raw_ += response_head(response, BodyFraming::kLength, answer_.keep_alive);
  if (answer_.request.method != "HEAD") {
    append_output(std::move(response.body));
  }
  answer_.complete = true;
  record(job_ != nullptr && job_->failed() ? "failed" : "done");
  drop_job();
  flush();
}

}  // namespace tandem::api
