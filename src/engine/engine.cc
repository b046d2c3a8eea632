#include "engine/engine.h"

#include <algorithm>
#include <functional>

#include "base/check.h"

namespace tandem {

Engine::Engine(const EngineConfig& config, StepExecutor& executor, StepPolicy& policy,
               const Clock& clock, observe::EngineObserver* observer, Recorder* recorder)
    : config_(config),
      executor_(executor),
      policy_(policy),
      clock_(clock),
      observer_(observer),
      recorder_(recorder),
      kv_(executor.limits().total_blocks, executor.limits().block_tokens, config.prefix_caching,
          executor.limits().host_blocks),
      seeds_(config.seed) {
  const int64_t pool_tokens = kv_.total_blocks() * kv_.block_tokens();
  CHECK(config.max_model_len > 0 && config.max_model_len <= pool_tokens,
        "a sequence of {} tokens must fit the KV pool of {} tokens", config.max_model_len,
        pool_tokens);
  CHECK(config.max_running <= executor.limits().max_logit_rows && config.max_running > 0,
        "{} running sequences need as many logit rows, there are {}", config.max_running,
        executor.limits().max_logit_rows);
  CHECK(executor.limits().host_blocks == 0 || executor.limits().offloaded_sequences > 0,
        "a host tier of {} blocks with {} places for offloaded sequences",
        executor.limits().host_blocks, executor.limits().offloaded_sequences);
}

Engine::~Engine() {
  for (auto& [id, kv] : write_throughs_) {
    end_write_through(kv);
  }
  for (Fetch& fetch : fetches_) {
    kv_.fetch_copied(fetch.prefix);
    kv_.end_fetch(fetch.prefix);
  }
  for (auto& [id, sequence] : sequences_) {
    if (sequence.kv.moving()) {
      kv_.copied(sequence.kv);
      kv_.abort_transfer(sequence.kv);
    }
    kv_.release(sequence.kv);
  }
}

Arrival Engine::make_arrival(RequestId id, Request request, Nanos now, int32_t block_tokens) {
  Arrival arrival{id, std::move(request), now, {}, {}, {}, 0};
  arrival.root = root_hash(arrival.request.tenant);
  extend_hashes(arrival.prompt_hashes, arrival.root, arrival.request.prompt, block_tokens);
  return arrival;
}

void Engine::post(EngineInput input) { inbox_.push_back(std::move(input)); }

void Engine::cancel_all() {
  std::vector<RequestId> ids;
  for (const auto& [id, sequences] : by_request_) {
    ids.push_back(id);
  }
  for (const EngineInput& input : inbox_) {
    if (const auto* arrival = std::get_if<Arrival>(&input)) {
      ids.push_back(arrival->id);
    }
  }
  std::ranges::sort(ids);
  for (const RequestId id : ids) {
    post(EngineCancel{id});
  }
}

EngineLoad Engine::load() const {
  const auto is_best_effort = [](const LiveSequence* sequence) {
    return sequence->service_class == ServiceClass::kBestEffort;
  };
  int64_t best_effort = 0;
  if (policy_.queue_order() == QueueOrder::kClassFirst) {
    best_effort =
        waiting_.end() - std::ranges::partition_point(waiting_, std::not_fn(is_best_effort));
  } else {
    best_effort = std::ranges::count_if(waiting_, is_best_effort);
  }
  best_effort += std::ranges::count_if(inbox_, [](const EngineInput& input) {
    const auto* arrival = std::get_if<Arrival>(&input);
    return arrival != nullptr && arrival->request.service_class == ServiceClass::kBestEffort;
  });
  return {.running = static_cast<int64_t>(running_.size() + offloaded_.size()),
          .waiting = static_cast<int64_t>(waiting_.size() + inbox_.size()),
          .waiting_best_effort = best_effort};
}

EngineActivity Engine::advance(Nanos now) {
  const Nanos work_began = clock_.now();
  now_ = now;
  std::optional<observe::StepRecord> finished;
  if (in_flight_) {
    if (!inbox_.empty() && input_.slices.empty()) {
      executor_.wait_no_longer();
    }
    if (!executor_.poll(result_)) {
      return running_step();
    }
    in_flight_ = false;
    record_.started = launched_;
    record_.duration = now - launched_;
    learn_from_step(result_);
    if (recorder_ != nullptr) {
      recorder_->result(
          result_,
          {.measured = record_.duration, .predicted = record_.predicted, .visits = step_visits()});
    }
    commit(result_, now);
    finished = std::move(record_);
  }
  admitted_.current = false;
  absorb_tier_events(now);
  absorb(now);
  const EngineActivity activity = plan_and_launch(now);
  deliver();
  if (observer_ != nullptr) {
    if (finished.has_value()) {
      finished->engine_work = clock_.now() - work_began;
      observer_->on_step(*finished);
    }
    report_gauges();
  }
  return activity;
}

// ---------------------------------------------------------------- absorb

void Engine::absorb(Nanos now) {
  for (EngineInput& input : inbox_) {
    std::visit([&](auto& one) { absorb_one(one, now); }, input);
  }
  inbox_.clear();
  remove_ended();
}

void Engine::absorb_one(Arrival& arrival, Nanos) {
  auto owner = std::allocate_shared<RequestState>(std::pmr::polymorphic_allocator<>(&memory_));
  owner->id = arrival.id;
  owner->arrived = arrival.arrived;
  owner->root = arrival.root;
  owner->seed = arrival.request.sampling.seed.value_or(seeds_());
  owner->forecast_ttft = arrival.forecast_ttft;
  owner->believed_cached = arrival.believed_cached;
  if (recorder_ != nullptr) {
    recorder_->arrival(next_step_, arrival, owner->seed);
  }
  owner->request = std::move(arrival.request);
  owner->stop_ids = config_.eos_token_ids;
  if (owner->request.sampling.ignore_eos || !owner->request.sampling.stop_token_ids.empty()) {
    owner->own_stop_ids = owner->request.sampling.stop_token_ids;
    if (!owner->request.sampling.ignore_eos) {
      owner->own_stop_ids.insert(owner->own_stop_ids.end(), config_.eos_token_ids.begin(),
                                 config_.eos_token_ids.end());
    }
    owner->stop_ids = owner->own_stop_ids;
  }
  CHECK(!owner->request.prompt.empty() && owner->request.n >= 1, "a request was not validated");

  const SequenceId id{next_sequence_++};
  LiveSequence& sequence = sequences_[id];
  sequence.id = id;
  // Room for a usual answer, so that sequences that began together do not all grow in one step.
  constexpr int32_t kUsualOutput = 1024;
  const std::vector<TokenId>& prompt = owner->request.prompt;
  sequence.tokens.reserve(
      prompt.size() +
      static_cast<size_t>(std::clamp(owner->request.sampling.max_tokens, 0, kUsualOutput)));
  sequence.tokens.assign(prompt.begin(), prompt.end());
  sequence.prompt_tokens = sequence.known_tokens();
  sequence.hashes = std::move(arrival.prompt_hashes);
  sequence.seed = owner->seed;
  std::vector<SequenceId>& ids = by_request_[owner->id];
  ids.push_back(sequence.id);
  for (int32_t choice = 1; choice < owner->request.n; ++choice) {
    sequence.forks.push_back(SequenceId{next_sequence_++});
  }
  sequence.choices = owner->request.n;
  sequence.set_owner(std::move(owner));
  enqueue(sequence);
}

void Engine::absorb_one(const EngineCancel& cancel, Nanos now) {
  const auto entry = by_request_.find(cancel.request);
  if (entry == by_request_.end()) {
    return;  // it ended meanwhile
  }
  if (recorder_ != nullptr) {
    recorder_->cancel(next_step_, cancel.request);
  }
  for (const SequenceId id : entry->second) {
    if (const auto found = sequences_.find(id); found != sequences_.end()) {
      end(found->second, FinishReason::kCancelled, now);
    }
  }
}

void Engine::absorb_one(const EngineStop& stop, Nanos now) {
  const auto entry = by_request_.find(stop.request);
  if (entry == by_request_.end()) {
    return;
  }
  for (const SequenceId id : entry->second) {
    const auto found = sequences_.find(id);
    if (found != sequences_.end() && found->second.choice == stop.choice) {
      if (recorder_ != nullptr) {
        recorder_->stop(next_step_, stop.request, stop.choice);
      }
      end(found->second, FinishReason::kStop, now);
    }
  }
}

// ---------------------------------------------------------------- ends and events

TokenEvent* Engine::emit(const LiveSequence& sequence, TokenEvent::Kind kind, int32_t choice) {
  if (sequence.sink == nullptr) {
    return nullptr;
  }
  TokenEvent& event = events_of(sequence).emplace_back();
  event.kind = kind;
  event.request = sequence.request;
  event.tag = sequence.sink_tag;
  event.choice = choice;
  return &event;
}

std::vector<TokenEvent>& Engine::events_of(const LiveSequence& sequence) {
  for (auto& [sink, events] : events_) {
    if (sink.get() == sequence.sink) {
      return events;
    }
  }
  std::vector<TokenEvent>& events =
      events_.emplace_back(sequence.owner->request.sink, std::vector<TokenEvent>{}).second;
  if (events_.size() == 1) {
    events.reserve(usual_events_);
  }
  return events;
}

void Engine::emit_finish(const LiveSequence& sequence, int32_t choice, FinishReason reason,
                         std::string error) {
  TokenEvent* event = emit(sequence, TokenEvent::Kind::kFinish, choice);
  if (event == nullptr) {
    return;
  }
  auto finish = std::make_unique<FinishInfo>();
  finish->reason = reason;
  finish->prompt_tokens = sequence.prompt_tokens;
  finish->output_tokens = choice == sequence.choice ? sequence.output_tokens() : 0;
  finish->cached_tokens = sequence.cached_tokens;
  finish->error = std::move(error);
  if (sequence.owner->request.explain) {
    finish->report = make_report(sequence);
  }
  if (reason == FinishReason::kStop && finish->output_tokens > 0 &&
      std::ranges::count(sequence.stop_ids, sequence.tokens.back()) > 0) {
    finish->stop_token = sequence.tokens.back();
    --finish->output_tokens;  // the end token is neither sent nor billed
  }
  event->finish = std::move(finish);
}

void Engine::end(LiveSequence& sequence, FinishReason reason, Nanos now, std::string error) {
  const SequenceState state = sequence.state.state();
  if (state == SequenceState::kFinishing) {
    return;
  }
  under_way_ -= state == SequenceState::kParkedInFlight ? 1 : 0;
  sequence.state.change_to(SequenceState::kFinishing);
  end_parking(sequence);
  ++ended_;
  leave_executor(sequence);
  emit_finish(sequence, sequence.choice, reason, error);
  // Choices that never came to be end with it.
  for (size_t i = 0; i < sequence.forks.size(); ++i) {
    emit_finish(sequence, static_cast<int32_t>(i) + 1, reason, error);
  }
  record_end(sequence, reason, now);
  if (admission_ != nullptr && sequence.service_class == ServiceClass::kLatencySensitive &&
      (reason == FinishReason::kStop || reason == FinishReason::kLength)) {
    admission_->ended(sequence.output_tokens());
  }
}

// No step is in flight here, so blocks of ended sequences are free as soon as no copy and no hop of
// them is.
void Engine::remove_ended() {
  if (ended_ == 0) {
    return;
  }
  const auto ended = [](const LiveSequence* sequence) {
    return sequence->state.state() == SequenceState::kFinishing && !sequence->in_flight();
  };
  std::vector<LiveSequence*> gone;
  std::ranges::copy_if(offloaded_, std::back_inserter(gone), ended);
  std::ranges::copy_if(running_, std::back_inserter(gone), ended);
  std::ranges::copy_if(waiting_, std::back_inserter(gone), ended);
  if (gone.empty()) {
    return;
  }
  std::erase_if(running_, ended);
  std::erase_if(waiting_, ended);
  std::erase_if(offloaded_, ended);
  ended_ -= std::ssize(gone);
  for (LiveSequence* sequence : gone) {
    if (sequence->kv.moving()) {
      kv_.abort_transfer(sequence->kv);
    }
    kv_.release(sequence->kv);
    sequence->state.change_to(SequenceState::kDone);
    const auto entry = by_request_.find(sequence->owner->id);
    std::erase(entry->second, sequence->id);
    if (entry->second.empty()) {
      by_request_.erase(entry);
    }
    sequences_.erase(SequenceId{sequence->id});
  }
}

void Engine::deliver() {
  usual_events_ = events_.empty() ? 0 : events_.front().second.size();
  for (auto& [sink, events] : events_) {
    sink->deliver(std::move(events));
  }
  events_.clear();
}

void Engine::report_gauges() {
  observer_->on_gauges({.running = static_cast<int64_t>(running_.size() + offloaded_.size()),
                        .waiting = static_cast<int64_t>(waiting_.size()),
                        .blocks_in_use = kv_.total_blocks() - kv_.free_blocks(),
                        .total_blocks = kv_.total_blocks(),
                        .offloaded = static_cast<int64_t>(offloaded_.size()),
                        .host_blocks_in_use = kv_.total_blocks(Tier::kHost) -
                                              kv_.free_blocks(Tier::kHost) -
                                              kv_.blocks_out_of_use(Tier::kHost),
                        .host_blocks = kv_.total_blocks(Tier::kHost),
                        .host_blocks_out_of_use = kv_.blocks_out_of_use(Tier::kHost),
                        .host_suspended = clock_.now() < suspended_until_});
  if (executor_.limits().host_blocks == 0) {
    return;
  }
  const TierCounts counts = executor_.tier_counts();
  observer_->on_tiers({.visits = counts.visits,
                       .hops = counts.hops,
                       .doubted = counts.doubted,
                       .hop_bytes_out = counts.bytes_to_host,
                       .hop_bytes_back = counts.bytes_from_host,
                       .offloaded_bytes = counts.offloaded_bytes,
                       .onloaded_bytes = counts.onloaded_bytes,
                       .attended_bytes = counts.attended_bytes,
                       .attention_time = counts.attention_time,
                       .hops_in_flight = counts.hops_in_flight,
                       .workers_lost = counts.workers_lost,
                       .returning_time = counts.returning_time,
                       .workers = counts.workers,
                       .layers = counts.layers,
                       .max_rows = executor_.limits().max_batched_tokens});
}

}  // namespace tandem
