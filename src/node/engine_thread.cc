#include "node/engine_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/log.h"
#include "node/refusal.h"

namespace tandem {
namespace {

Error stopped() { return {ErrorCode::kUnavailable, "the server is shutting down", ""}; }

}  // namespace

EngineThread::EngineThread(ServedModel model, const EngineThreadOptions& options,
                           const Clock& clock, std::function<void(const std::string&)> on_rejected)
    : model_(std::move(model)),
      options_(options),
      clock_(clock),
      on_rejected_(std::move(on_rejected)) {}

EngineThread::~EngineThread() { shutdown(); }

void EngineThread::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    cancel_all_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) {
    thread_.join();
  }
  const std::lock_guard engine(engine_mutex_);
  engine_.reset();
}

void EngineThread::start(std::unique_ptr<Engine> engine) {
  CHECK(engine_ == nullptr, "the engine was started before");
  engine_ = std::move(engine);
  has_admission_ = engine_->has_admission();
  thread_ = std::thread([this] { run(); });
  ServingState loading = ServingState::kLoading;
  state_.compare_exchange_strong(loading, ServingState::kReady);  // it may be draining already
}

void EngineThread::set_failed() { state_.store(ServingState::kFailed); }

void EngineThread::step_completed() {
  {
    const std::lock_guard lock(mutex_);
    step_completed_ = true;
  }
  wake_.notify_one();
}

void EngineThread::drain() {
  const std::lock_guard lock(mutex_);
  if (state_.load() != ServingState::kFailed) {
    state_.store(ServingState::kDraining);
  }
}

void EngineThread::cancel_all() {
  {
    const std::lock_guard lock(mutex_);
    cancel_all_ = true;
  }
  wake_.notify_one();
}

std::string EngineThread::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool EngineThread::idle() const {
  const FrontendLoad now = load();
  return now.running == 0 && now.waiting == 0;
}

FrontendLoad EngineThread::load() const {
  const std::lock_guard lock(mutex_);
  return {engine_load_.running, engine_load_.waiting + queued().all};
}

Status EngineThread::check_fit(const Request& request) const {
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  if (prompt_tokens == 0) {
    return invalid_argument("the prompt has no tokens", "prompt");
  }
  if (prompt_tokens + request.sampling.max_tokens > model_.max_model_len) {
    return invalid_argument(
        fmt::format(
            "this model's context is {} tokens at most; the prompt has {} and max_tokens is {}",
            model_.max_model_len, prompt_tokens, request.sampling.max_tokens),
        "max_tokens");
  }
  if (request.n < 1 || request.n > model_.max_choices) {
    return invalid_argument(fmt::format("n must be 1 to {}, not {}", model_.max_choices, request.n),
                            "n");
  }
  const auto outside = std::ranges::find_if(
      request.prompt, [&](TokenId token) { return token < 0 || token >= model_.vocabulary; });
  if (outside != request.prompt.end()) {
    return invalid_argument(
        fmt::format("token id {} is not in the vocabulary of {}", *outside, model_.vocabulary),
        "prompt");
  }
  return {};
}

Status EngineThread::check_queue(const Request& request) const {
  const bool best_effort = request.service_class == ServiceClass::kBestEffort;
  const Arrivals queued = this->queued();
  const int64_t flex = engine_load_.waiting_best_effort + queued.best_effort;
  const int64_t waiting = best_effort ? flex : engine_load_.waiting + queued.all - flex;
  const int64_t limit = best_effort ? options_.max_queue_flex : options_.max_queue;
  const char* flag = best_effort ? "--max-queue-flex" : "--max-queue";
  const int64_t prompts = int64_t{1} + request.followers;
  if (prompts > 1 && prompts > limit) {
    return invalid_argument(
        fmt::format("the request has {} prompts, and the queue takes {} ({}); send fewer prompts "
                    "at a time, or raise the limit",
                    prompts, limit, flag),
        "prompt");
  }
  if (waiting + prompts > limit) {
    return Error{ErrorCode::kOverloaded,
                 fmt::format("the queue is full: {} {}requests wait ({}){}; try again later",
                             waiting, best_effort ? "best-effort " : "", flag,
                             prompts > 1 ? fmt::format(", and {} prompts ask", prompts) : ""),
                 ""};
  }
  return {};
}

Status EngineThread::check_room(const Request& request) {
  const ServingState now = state();
  if (now == ServingState::kLoading) {
    return Error{ErrorCode::kUnavailable, "the model is still loading; try again in a moment", ""};
  }
  if (now == ServingState::kFailed) {
    return Error{ErrorCode::kUnavailable,
                 failure_.empty() ? "the engine has failed; see the server's log"
                                  : "the engine has failed: " + failure_,
                 ""};
  }
  if (now == ServingState::kDraining) {
    reject("draining");
    return Error{ErrorCode::kUnavailable, "the server is shutting down and accepts no new requests",
                 ""};
  }
  const Status room = check_queue(request);
  if (!room.ok() && room.error().code == ErrorCode::kOverloaded) {
    reject("queue_full");
  }
  return room;
}

void EngineThread::reject(const std::string& reason) const {
  if (on_rejected_) {
    on_rejected_(reason);
  }
}

Submission EngineThread::submit(Request request) {
  if (const Status fits = check_fit(request); !fits.ok()) {
    return fits.error();
  }
  const RequestId id{next_request_.fetch_add(1)};
  Arrival arrival =
      Engine::make_arrival(id, std::move(request), clock_.now(), options_.block_tokens);
  if (state() == ServingState::kReady && has_admission_) {
    if (std::optional<Refusal> refusal = admit(arrival)) {
      return *std::move(refusal);
    }
  } else {
    const std::lock_guard lock(mutex_);
    if (const Status room = check_room(arrival.request); !room.ok()) {
      return room.error();
    }
    put_in_mailbox(std::move(arrival));
  }
  wake_.notify_one();
  return id;
}

void EngineThread::put_in_mailbox(Arrival arrival) {
  ++in_mailbox_.all;
  in_mailbox_.best_effort += arrival.request.service_class == ServiceClass::kBestEffort ? 1 : 0;
  mailbox_.emplace_back(std::move(arrival));
}

EngineThread::Arrivals EngineThread::queued() const {
  return {.all = in_mailbox_.all + collected_.all,
          .best_effort = in_mailbox_.best_effort + collected_.best_effort};
}

std::optional<Refusal> EngineThread::admit(Arrival& arrival) {
  const std::lock_guard engine(engine_mutex_);
  {
    const std::lock_guard lock(mutex_);
    const Status room = check_room(arrival.request);
    if (!room.ok() || engine_ == nullptr) {
      Refusal refusal;
      refusal.error = room.ok() ? stopped() : room.error();
      return refusal;
    }
  }
  const AdmissionBook::Answer considered = engine_->consider(arrival, clock_.now());
  if (considered.verdict.answer == AdmissionAnswer::kRefuse) {
    reject(std::string(reason_name(considered.verdict.reason)));
    return describe_refusal(considered.ask, considered.verdict);
  }
  // Before engine_mutex_ is free, so that it is among the inputs of the next advance.
  const std::lock_guard lock(mutex_);
  put_in_mailbox(std::move(arrival));
  return std::nullopt;
}

void EngineThread::cancel(RequestId request) { enqueue(EngineCancel{request}); }

void EngineThread::stop(RequestId request, int32_t choice) { enqueue(EngineStop{request, choice}); }

void EngineThread::enqueue(EngineInput input) {
  {
    const std::lock_guard lock(mutex_);
    mailbox_.push_back(std::move(input));
  }
  wake_.notify_one();
}

void EngineThread::collect(EngineInputs& inputs) {
  const std::lock_guard lock(mutex_);
  shutdown_seen_ = stopping_;
  inputs.insert(inputs.end(), std::make_move_iterator(mailbox_.begin()),
                std::make_move_iterator(mailbox_.end()));
  mailbox_.clear();
  collected_ = queued();
  in_mailbox_ = {};
  if (cancel_all_) {
    tandem::cancel_all(*engine_, inputs);
    cancel_all_ = stopping_;
  }
}

void EngineThread::run() {
  EngineInputs inputs;
  while (true) {
    std::unique_lock engine(engine_mutex_);
    collect(inputs);
    const EngineAdvance advance = engine_->advance(clock_.now(), inputs);
    if (advance.activity == EngineActivity::kFailed) {
      end_in_failure(engine_->failure()->message, inputs);
      engine.unlock();
      if (on_failed_) {
        on_failed_();
      }
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      engine_load_ = engine_->load();
      if (inputs.empty()) {
        collected_ = {};
      }
      if (stopping_ && advance.activity == EngineActivity::kIdle && mailbox_.empty()) {
        return;
      }
    }
    engine.unlock();
    wait(advance);
  }
}

// Needs engine_mutex_. The state first: who hears of a request's end may ask for it.
void EngineThread::end_in_failure(const std::string& reason, EngineInputs& inputs) {
  log::error("{}", reason);
  {
    const std::lock_guard lock(mutex_);
    failure_ = reason;
    state_.store(ServingState::kFailed);
  }
  collect(inputs);  // what was accepted until then
  engine_->end_all(reason, inputs);
  const std::lock_guard lock(mutex_);
  engine_load_ = {};
  collected_ = {};
}

// While a step runs only its completion matters, unless it is waiting for hops alone: new inputs
// wait for it anyway. An idle engine is also woken by a worker that was taken for lost and is back.
void EngineThread::wait(const EngineAdvance& advance) {
  std::unique_lock lock(mutex_);
  const auto news = [&] {
    if (advance.activity == EngineActivity::kStepRunning) {
      return step_completed_;
    }
    // If the engine knows already that all is to end, only the tiers have anything left to say.
    const bool ending = (stopping_ || cancel_all_) && !shutdown_seen_;
    return !mailbox_.empty() || ending || step_completed_;
  };
  if (advance.next_wakeup == Nanos::max()) {
    wake_.wait(lock, news);
  } else {
    wake_.wait_for(lock, advance.next_wakeup - clock_.now(), news);
  }
  step_completed_ = false;
}

}  // namespace tandem
