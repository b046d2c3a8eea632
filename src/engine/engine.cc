#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/gauges.h"

namespace tandem {
namespace {

TierMoverOptions mover_options(const EngineConfig& config, const EngineParts& parts) {
  return {.max_running = config.max_running,
          .prefix_caching = config.prefix_caching,
          .max_host_failures = config.max_host_failures,
          .fetch = {.max_running = config.max_running,
                    .from_host = config.from_host,
                    .step_times = parts.step_times}};
}

AdmissionBookOptions book_options(const EngineConfig& config, const EngineParts& parts) {
  return {.max_running = config.max_running,
          .max_model_len = config.max_model_len,
          .step_tokens = parts.executor.limits().max_batched_tokens,
          .keeps_refusals = &parts.recorder != &no_recorder()};
}

ViewOptions view_options(const EngineConfig& config, const EngineParts& parts) {
  return {.max_running = config.max_running,
          .shows_later = parts.admission != nullptr,
          .shows_stages = parts.policy.reads_stages()};
}

EngineActivity running_step(const CurrentStep& step) {
  return step.visitors_only() ? EngineActivity::kVisitorsOnly : EngineActivity::kStepRunning;
}

// A policy may move its budget while it serves: the log tells when.
void note_step_budget(const StepPlan& plan, CurrentStep& step) {
  step.record.step_budget = plan.step_budget;
  if (plan.step_budget == Nanos{0}) {
    return;
  }
  if (step.step_budget > Nanos{0} && plan.step_budget != step.step_budget) {
    log::info("step budget: {} from now on, {} before, by what tokens took",
              format_duration(plan.step_budget), format_duration(step.step_budget));
  }
  step.step_budget = plan.step_budget;
}

EngineAdvance until(EngineActivity activity, const StepExecutor& executor, Nanos now) {
  const bool idle = activity == EngineActivity::kIdle;
  return {.activity = activity, .next_wakeup = idle ? Nanos::max() : executor.next_check(now)};
}

}  // namespace

Engine::Engine(const EngineConfig& config, const EngineParts& parts)
    : config_(config),
      parts_(parts),
      kv_(parts.executor.limits().total_blocks, parts.executor.limits().block_tokens,
          config.prefix_caching, parts.executor.limits().host_blocks),
      table_(parts.policy.make_queue_order()),
      outbox_(parts.executor.limits().hops_per_token),
      shortfalls_(parts.policy.name(), kv_, step_),
      mover_(mover_options(config, parts), table_, kv_, parts.executor, step_, shortfalls_),
      finisher_(table_, mover_, outbox_, parts.observer, parts.admission),
      assembler_(table_, kv_, mover_, shortfalls_, parts.executor.limits(), step_),
      committer_(config.max_model_len, parts.step_times, table_, kv_, mover_, outbox_, finisher_,
                 step_),
      views_(view_options(config, parts), table_, kv_, parts.executor, mover_.trust(), step_),
      admission_book_(book_options(config, parts), parts.admission, table_, kv_, step_, parts.clock,
                      parts.observer),
      seeds_(config.seed) {
  const ExecutorLimits& limits = parts.executor.limits();
  const int64_t pool_tokens = kv_.total_blocks() * kv_.block_tokens();
  CHECK(config.max_model_len > 0 && config.max_model_len <= pool_tokens,
        "a sequence of {} tokens must fit the KV pool of {} tokens", config.max_model_len,
        pool_tokens);
  CHECK(config.max_running <= limits.max_logit_rows && config.max_running > 0,
        "{} running sequences need as many logit rows, there are {}", config.max_running,
        limits.max_logit_rows);
  CHECK(limits.host_blocks == 0 || limits.offloaded_sequences > 0,
        "a host tier of {} blocks with {} places for offloaded sequences", limits.host_blocks,
        limits.offloaded_sequences);
}

Engine::~Engine() {
  mover_.release_all();
  table_.release_all(kv_);
}

Arrival Engine::make_arrival(RequestId id, Request request, Nanos now, int32_t block_tokens) {
  Arrival arrival{id, std::move(request), now, {}, {}, {}, 0};
  arrival.root = root_hash(arrival.request.tenant);
  extend_hashes(arrival.prompt_hashes, arrival.root, arrival.request.prompt, block_tokens);
  return arrival;
}

EngineLoad Engine::load() const {
  return {.running = std::ssize(table_.running()) + std::ssize(table_.offloaded()),
          .waiting = std::ssize(table_.waiting()),
          .waiting_best_effort =
              static_cast<int64_t>(table_.waiting().size(ServiceClass::kBestEffort))};
}

bool Engine::is_on_host(SequenceId id) const {
  const LiveSequence* sequence = table_.find(id);
  return sequence != nullptr && sequence->kv.tier() == Tier::kHost;
}

EngineAdvance Engine::advance(Nanos now, EngineInputs& inputs) {
  const Nanos work_began = parts_.clock.now();
  step_.now = now;
  if (step_.in_flight && !inputs.empty() && step_.visitors_only()) {
    parts_.executor.wait_no_longer();
  }
  const bool finished = finish_step();
  if (failure() != nullptr) {
    return {.activity = EngineActivity::kFailed};
  }
  if (!finished) {
    return until(running_step(step_), parts_.executor, now);
  }
  admission_book_.invalidate();
  absorb_tier_events();
  absorb(inputs);
  const EngineActivity activity = plan_and_launch();
  report(work_began);
  return until(activity, parts_.executor, now);
}

bool Engine::commit(Nanos now) {
  const Nanos work_began = parts_.clock.now();
  step_.now = now;
  const bool done = finish_step();
  if (done) {
    report(work_began);
  }
  return done;
}

// False: the step in flight is still running.
bool Engine::finish_step() {
  if (!step_.in_flight) {
    return true;
  }
  if (!parts_.executor.poll(step_.result)) {
    return false;
  }
  step_.in_flight = false;
  if (failure() != nullptr) {
    return true;  // it was not computed
  }
  step_.record.started = step_.launched;
  step_.record.duration = step_.now - step_.launched;
  step_.record.visits = step_.result.visits;
  step_.record.mode = step_.input.mode;
  step_.ready = std::max(step_.ready, step_.result.ready);
  committer_.learn(step_.result);
  if (parts_.host_times != nullptr) {
    parts_.host_times->observe(step_.result.host);
  }
  parts_.recorder.result(step_.result,
                         {.measured = step_.record.duration, .predicted = step_.record.predicted});
  committer_.commit(step_.result);
  step_.finished = std::move(step_.record);
  return true;
}

// Counts come before tokens: a client that has its answer may read them next.
void Engine::report(Nanos work_began) {
  if (step_.finished.has_value()) {
    step_.finished->engine_work = parts_.clock.now() - work_began + delivery_;
    delivery_ = Nanos{0};
    parts_.observer.on_step(*step_.finished);
    step_.finished.reset();
  }
  parts_.observer.on_gauges(gauges_of(table_, kv_, mover_.trust().suspended(parts_.clock.now())));
  if (parts_.executor.limits().host_blocks > 0) {
    parts_.observer.on_tiers(tiers_of(parts_.executor));
  }
  const Nanos delivery_began = parts_.clock.now();
  outbox_.deliver();
  delivery_ += parts_.clock.now() - delivery_began;
}

// ---------------------------------------------------------------- absorb

void Engine::absorb_tier_events() {
  if (kv_.total_blocks(Tier::kHost) == 0) {
    return;
  }
  const TierEvents events = parts_.executor.take_tier_events();
  parts_.recorder.tiers(step_.number, events);
  for (LiveSequence* sequence : mover_.absorb(events, step_.now)) {
    finisher_.finish(*sequence, FinishReason::kError, step_.now,
                     fmt::format("the host failed to compute the attention of this request {} "
                                 "times; the server's log says why",
                                 sequence->host_failures));
  }
  if (!events.transfers_done.empty() || !events.left.empty() || !events.failed.empty()) {
    mover_.settle();
    table_.remove_ended(kv_);
  }
}

void Engine::absorb(EngineInputs& inputs) {
  admission_book_.record_refusals(parts_.recorder);
  for (EngineInput& input : inputs) {
    std::visit([&](auto& item) { absorb_one(item); }, input);
  }
  inputs.clear();
  table_.remove_ended(kv_);
}

void Engine::absorb_one(Arrival& arrival) {
  std::shared_ptr<RequestState> owner = table_.new_request();
  owner->id = arrival.id;
  owner->arrived = arrival.arrived;
  owner->root = arrival.root;
  owner->seed = arrival.request.sampling.seed.value_or(seeds_());
  owner->forecast_ttft = arrival.forecast_ttft;
  owner->believed_cached = arrival.believed_cached;
  parts_.recorder.arrival(step_.number, arrival, owner->seed);
  owner->request = std::move(arrival.request);
  const SamplingParams& sampling = owner->request.sampling;
  owner->stop_ids = config_.eos_token_ids;
  if (sampling.ignore_eos || !sampling.stop_token_ids.empty()) {
    owner->own_stop_ids = sampling.stop_token_ids;
    if (!sampling.ignore_eos) {
      owner->own_stop_ids.insert(owner->own_stop_ids.end(), config_.eos_token_ids.begin(),
                                 config_.eos_token_ids.end());
    }
    owner->stop_ids = owner->own_stop_ids;
  }
  CHECK(!owner->request.prompt.empty() && owner->request.n >= 1, "a request was not validated");
  table_.add(std::move(owner), std::move(arrival.prompt_hashes));
}

void Engine::absorb_one(const EngineCancel& cancel) {
  const std::span<const SequenceId> sequences = table_.of_request(cancel.request);
  if (sequences.empty()) {
    return;  // it has ended meanwhile
  }
  parts_.recorder.cancel(step_.number, cancel.request);
  for (const SequenceId id : sequences) {
    if (LiveSequence* sequence = table_.find(id)) {
      finisher_.finish(*sequence, FinishReason::kCancelled, step_.now);
    }
  }
}

void Engine::absorb_one(const EngineStop& stop) {
  for (const SequenceId id : table_.of_request(stop.request)) {
    LiveSequence* sequence = table_.find(id);
    if (sequence != nullptr && sequence->choice == stop.choice) {
      parts_.recorder.stop(step_.number, stop.request, stop.choice);
      finisher_.finish(*sequence, FinishReason::kStop, step_.now);
    }
  }
}

// Nothing is waited for any more, neither the step in flight nor copies nor hops.
void Engine::end_all(const std::string& reason, EngineInputs& inputs) {
  const Nanos work_began = parts_.clock.now();
  step_.in_flight = false;
  absorb(inputs);
  for (const RequestId request : table_.requests()) {
    const std::span<const SequenceId> of_request = table_.of_request(request);
    const std::vector<SequenceId> sequences(of_request.begin(), of_request.end());
    for (const SequenceId id : sequences) {
      if (LiveSequence* sequence = table_.find(id)) {
        finisher_.finish(*sequence, FinishReason::kError, step_.now, reason);
      }
    }
  }
  table_.remove_ended(kv_);
  report(work_began);
}

// ---------------------------------------------------------------- plan and launch

EngineActivity Engine::plan_and_launch() {
  step_.record = {};
  int64_t without_step = 0;  // plans so far
  while (table_.size() > 0) {
    assembler_.begin();
    mover_.prepare();
    const SystemView view = views_.make();
    step_.ready = std::min<int64_t>(step_.ready, 0);  // shown once
    const StepPlan plan = parts_.policy.plan(view);
    parts_.recorder.plan(view, plan);
    note_step_budget(plan, step_);
    step_.record.inequality = plan.inequality;
    const bool changed = assembler_.assemble(plan);
    if (!step_.input.slices.empty() || !step_.input.transfers.empty() ||
        mover_.tokens_under_way() > 0) {
      step_.launched = step_.now;
      step_.in_flight = true;
      step_.record.mode_changed = std::exchange(step_.last_mode, plan.mode) != plan.mode;
      parts_.executor.launch(step_.input);
      ++step_.number;
      // It made room, so somebody may begin who must not wait for a hop.
      if (changed && step_.visitors_only()) {
        parts_.executor.wait_no_longer();
      }
      return running_step(step_);
    }
    if (mover_.busy()) {
      return EngineActivity::kTierBusy;
    }
    // Limits are checked when a request is accepted, so this is unreachable as long as policies
    // keep their guarantee; a policy that breaks it, or drops and admits the same sequences in
    // turn, costs one request, not the server.
    constexpr int64_t kMaxMovesOfASequence = 4;
    if (!changed || ++without_step > kMaxMovesOfASequence * table_.size()) {
      without_step = 0;
      fail_unschedulable();
    }
  }
  return mover_.busy() ? EngineActivity::kTierBusy : EngineActivity::kIdle;
}

void Engine::fail_unschedulable() {
  LiveSequence* head = !table_.running().empty()   ? table_.running().front()
                       : !table_.waiting().empty() ? table_.waiting().front()
                                                   : table_.offloaded().front();
  finisher_.finish(
      *head, FinishReason::kError, step_.now,
      fmt::format("policy {} found no place for a sequence of {} tokens with {} of {} blocks of {} "
                  "tokens free",
                  parts_.policy.name(), head->known_tokens(), kv_.free_blocks(), kv_.total_blocks(),
                  kv_.block_tokens()));
  table_.remove_ended(kv_);
}

Status Engine::audit() const {
  RETURN_IF_ERROR(views_.audit());
  std::vector<const SequenceKv*> users;
  RETURN_IF_ERROR(table_.audit(users));
  RETURN_IF_ERROR(mover_.audit(users));
  return kv_.audit(users);
}

void cancel_all(const Engine& engine, EngineInputs& inputs) {
  std::vector<RequestId> ids = engine.requests();
  for (const EngineInput& input : inputs) {
    if (const auto* arrival = std::get_if<Arrival>(&input)) {
      ids.push_back(arrival->id);
    }
  }
  std::ranges::sort(ids);
  for (const RequestId id : ids) {
    inputs.emplace_back(EngineCancel{id});
  }
}

}  // namespace tandem
