// The part of Engine that makes a step: commit the finished one, view, plan, bind, launch.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "engine/engine.h"
#include "engine/prefetch.h"

namespace tandem {
namespace {

// The policy sees this many waiting sequences at most; more could not be admitted in one step
// anyway.
constexpr size_t kWaitingShown = 64;

// Not while its prefix is on its way from the host: it would be computed beside that.
bool may_be_shown(const LiveSequence* sequence) {
  return sequence->fetched != LiveSequence::Fetched::kUnderWay;
}

}  // namespace

// ---------------------------------------------------------------- commit

void Engine::commit(StepResult& result, Nanos now) {
  size_t next = 0;
  size_t next_score = 0;
  std::span<const SampleSpec> all_specs = step_samples_;
  for (std::vector<Nanos>& gaps : record_.token_gaps) {
    gaps.reserve(all_specs.size());
  }
  for (size_t i = 0; i < step_parts_.size(); ++i) {
    prefetch_ahead(i, step_parts_.size(), [&](size_t at) { return step_parts_[at].sequence; });
    const auto [sequence, tokens, samples] = step_parts_[i];
    commit_slice(*sequence, tokens);
    if (const size_t scores = input_.slices[i].scored.size(); scores > 0) {
      CHECK(next_score + scores <= result.scored.size(), "step {}: {} scores", result.step,
            result.scored.size());
      commit_scores(*sequence, input_.slices[i],
                    std::span(result.scored).subspan(next_score, scores));
      next_score += scores;
    }
    const std::span<const SampleSpec> specs = all_specs.first(samples);
    all_specs = all_specs.subspan(samples);
    if (specs.empty()) {
      continue;
    }
    if (sequence->scores_prompt()) {
      emit_prompt(*sequence);
    }
    if (!sequence->forks.empty()) {
      make_forks(
          *sequence);  // before the first token is appended: all choices share the prompt alone
    }
    for (const SampleSpec& spec : specs) {
      CHECK(next < result.samples.size() && result.samples[next].sequence == spec.sequence,
            "step {}: sample {} is not the one asked for", result.step, next);
      accept_token(spec.sequence == sequence->id ? *sequence : *sequences_.at(spec.sequence),
                   result.samples[next], now);
      ++next;
    }
  }
  step_parts_.clear();
  for (const SampledToken& sampled : result.visitors) {
    commit_visitor(sampled, now);
  }
  remove_ended();
}

void Engine::learn_from_step(const StepResult& result) {
  if (step_times_ == nullptr || shape_.rows() == 0) {
    return;
  }
  shape_.visitor_logits = static_cast<int32_t>(result.visitors.size());
  // An executor that does not count visits says 0.
  shape_.visits = std::max(step_visits() - shape_.visitor_logits, int64_t{0});
  record_.predicted = step_times_->step_time(shape_);
  record_.regime = latency::regime_name(latency::regime_of(shape_));
  record_.correction = step_times_->correction(shape_);
  step_times_->observe(shape_, record_.duration);
}

// These tokens have KV now.
void Engine::count_computed(LiveSequence& sequence, int32_t tokens) {
  sequence.computed_tokens += tokens;
  extend_hashes(sequence.hashes, sequence.owner->root,
                std::span(sequence.tokens).first(static_cast<size_t>(sequence.computed_tokens)),
                kv_.block_tokens());
  kv_.register_computed(sequence.kv, sequence.hashes, sequence.computed_tokens);
}

void Engine::commit_slice(LiveSequence& sequence, int32_t tokens) {
  count_computed(sequence, tokens);
  const bool done = sequence.computed_tokens == sequence.known_tokens();
  const SequenceState state = done ? SequenceState::kDecoding : SequenceState::kPrefilling;
  if (sequence.state.state() != state) {
    sequence.state.change_to(state);
  }
}

void Engine::commit_visitor(const SampledToken& sampled, Nanos now) {
  const auto found = sequences_.find(sampled.sequence);
  CHECK(found != sequences_.end() && found->second->state.state() == SequenceState::kParkedInFlight,
        "a visitor's sample of sequence {}, which has no token under way", raw(sampled.sequence));
  LiveSequence& sequence = *found->second;
  --under_way_;
  failures_in_a_row_ = 0;
  suspensions_ = 0;
  ++record_.decode_tokens;
  ++sequence.host_tokens;
  count_computed(sequence, 1);
  sequence.state.change_to(SequenceState::kParkedWaiting);
  accept_token(sequence, sampled, now);
}

void Engine::commit_scores(LiveSequence& sequence, const StepSlice& slice,
                           std::span<LogprobInfo> scores) {
  for (size_t i = 0; i < scores.size(); ++i) {
    // Some are known already where a prompt is computed again.
    if (static_cast<size_t>(slice.first_position) + i == sequence.prompt_scores.size()) {
      sequence.prompt_scores.push_back(std::move(scores[i]));
    }
  }
}

void Engine::emit_prompt(LiveSequence& sequence) {
  CHECK(std::ssize(sequence.prompt_scores) + 1 == sequence.prompt_tokens,
        "{} scores of a prompt of {} tokens", sequence.prompt_scores.size(),
        sequence.prompt_tokens);
  TokenEvent event;
  event.kind = TokenEvent::Kind::kPrompt;
  event.choice = sequence.choice;
  event.prompt_logprobs =
      std::make_unique<std::vector<LogprobInfo>>(std::exchange(sequence.prompt_scores, {}));
  emit(*sequence.owner, std::move(event));
}

void Engine::make_forks(LiveSequence& parent) {
  std::vector<SequenceId>& ids = by_request_.at(parent.owner->id);
  const auto place = std::ranges::find(running_, &parent);
  auto after = place + 1;
  for (size_t i = 0; i < parent.forks.size(); ++i) {
    auto fork = std::make_unique<LiveSequence>();
    fork->id = parent.forks[i];
    fork->set_owner(parent.owner);
    fork->choice = static_cast<int32_t>(i) + 1;
    fork->state = parent.state;
    fork->tokens = parent.tokens;
    fork->prompt_tokens = parent.prompt_tokens;
    fork->computed_tokens = parent.computed_tokens;
    fork->kv = kv_.fork(parent.kv, parent.computed_tokens);
    fork->hashes = parent.hashes;
    fork->seed = parent.owner->seed + i + 1;
    fork->cached_tokens = parent.cached_tokens;
    fork->admitted_before = true;
    fork->admission = parent.admission;
    fork->admitted = parent.admitted;
    fork->preemptions = parent.preemptions;
    fork->parked = parent.parked;
    ids.push_back(fork->id);
    after = running_.insert(after, fork.get()) + 1;
    sequences_.emplace(fork->id, std::move(fork));
  }
  parent.forks.clear();
}

void Engine::accept_token(LiveSequence& sequence, const SampledToken& sampled, Nanos now) {
  if (sampled.token < 0) {
    end(sequence, FinishReason::kError, now,
        "the model produced no finite logits for this request; its weights or the request's "
        "logit_bias are broken");
    return;
  }
  ++record_.sampled_tokens;
  sequence.tokens.push_back(sampled.token);
  const auto of_class = static_cast<size_t>(sequence.service_class);
  if (sequence.output_tokens() == 1) {
    sequence.first_token = now;
    if (sequence.choice == 0) {
      record_.prompt_tokens += sequence.prompt_tokens;
      record_.cached_tokens += sequence.cached_tokens;
      record_.first_token_times[of_class].push_back(now - sequence.owner->arrived);
    }
  } else {
    const Nanos gap = now - sequence.last_token;
    sequence.most_gap = std::max(sequence.most_gap, gap);
    record_.token_gaps[of_class].push_back(gap);
  }
  sequence.last_token = now;
  if (std::ranges::count(sequence.stop_ids, sampled.token) > 0) {
    end(sequence, FinishReason::kStop, now);
    return;
  }
  TokenEvent event;
  event.choice = sequence.choice;
  event.token = sampled.token;
  if (sampled.logprobs.has_value()) {
    event.logprobs = std::make_unique<LogprobInfo>(*sampled.logprobs);
  }
  emit(*sequence.owner, std::move(event));
  if (sequence.output_tokens() >= sequence.max_tokens ||
      sequence.known_tokens() >= config_.max_model_len) {
    end(sequence, FinishReason::kLength, now);
  }
}

// ---------------------------------------------------------------- view

SequenceView Engine::view_of(const LiveSequence& sequence) const {
  return {
      .id = sequence.id,
      .state = sequence.state.state(),
      .service_class = sequence.service_class,
      .level = sequence.level,
      .arrived = sequence.arrived,
      .first_token_due = sequence.output_tokens() == 0 ? sequence.first_token_due : Nanos::max(),
      .tpot = sequence.tpot_target,
      .known_tokens = sequence.known_tokens(),
      .computed_tokens = sequence.computed_tokens,
      .held_blocks = sequence.kv.blocks(),
      .own_blocks = kv_.own_blocks(sequence.kv),
      // On the host nobody shares a block that will be written.
      .copy_blocks = sequence.kv.tier() == Tier::kAccelerator &&
                             kv_.needs_copy(sequence.kv, sequence.computed_tokens)
                         ? 1
                         : 0,
      .cached_free_blocks = 0,
      .choices = static_cast<int32_t>(sequence.forks.size()) + 1,
      .tier = sequence.kv.tier(),
      .transfer_blocks = sequence.kv.blocks(),
      .host_failures = sequence.host_failures};
}

SequenceView Engine::view_of_waiting(const LiveSequence& sequence) const {
  SequenceView view = view_of(sequence);
  const PrefixMatch match = kv_.match(sequence.cacheable(), sequence.known_tokens());
  view.computed_tokens = match.tokens;
  view.cached_free_blocks = match.free_blocks;
  return view;
}

// Shows the head of the queue, up to the first sequence that cannot find its blocks: policies do
// not look past it. Where classes go before each other the first of best effort is shown behind
// whatever stands before it, so that a policy can see how long it waits.
void Engine::view_waiting() {
  waiting_views_.clear();
  view_head_of_queue();
  if (policy_.queue_order() != QueueOrder::kClassFirst) {
    return;
  }
  const auto best_effort = std::ranges::partition_point(waiting_, [](const LiveSequence* sequence) {
    return sequence->service_class == ServiceClass::kLatencySensitive;
  });
  const auto first = std::find_if(best_effort, waiting_.end(), may_be_shown);
  if (first != waiting_.end() && (waiting_views_.empty() || waiting_views_.back().service_class ==
                                                                ServiceClass::kLatencySensitive)) {
    waiting_views_.push_back(view_of_waiting(**first));
  }
}

void Engine::view_head_of_queue() {
  int64_t free = kv_.free_blocks();
  for (const LiveSequence* sequence : waiting_) {
    if (waiting_views_.size() == kWaitingShown || free < 0 ||
        static_cast<int32_t>(running_.size() + waiting_views_.size()) >= config_.max_running) {
      return;
    }
    if (!may_be_shown(sequence)) {
      continue;
    }
    waiting_views_.push_back(view_of_waiting(*sequence));
    const SequenceView& shown = waiting_views_.back();
    free -= kv_.blocks_for(shown.known_tokens) - shown.computed_tokens / kv_.block_tokens() +
            shown.cached_free_blocks;
  }
}

SystemView Engine::make_view(Nanos now) {
  running_views_.clear();
  int32_t places = config_.max_running;
  for (const LiveSequence* sequence : running_) {
    running_views_.push_back(view_of(*sequence));
    places -= running_views_.back().choices;
  }
  view_waiting();
  SystemView view;
  view.now = now;
  view.step = next_step_;
  view.running = running_views_;
  view.waiting = waiting_views_;
  view.budget = {.tokens = executor_.limits().max_batched_tokens,
                 .logit_rows = executor_.limits().max_logit_rows,
                 .sequences = std::max(places, 0),
                 .free_blocks = kv_.free_blocks(),
                 .total_blocks = kv_.total_blocks(),
                 .host_free_blocks = kv_.free_blocks(Tier::kHost),
                 .host_total_blocks = kv_.total_blocks(Tier::kHost),
                 .block_tokens = kv_.block_tokens()};
  if (const int64_t ready = executor_.tier_counts().ready; ready >= 0) {
    view.ready = ready - std::exchange(ready_before_, ready);
  }
  view_offloaded(view);
  return view;
}

// ---------------------------------------------------------------- plan and launch

EngineActivity Engine::plan_and_launch(Nanos now) {
  record_ = {};
  while (!running_.empty() || !waiting_.empty() || !offloaded_.empty()) {
    input_.transfers.clear();
    input_.entering.clear();
    take_back_failed();
    begin_fetches();
    const SystemView view = make_view(now);
    const StepPlan plan = policy_.plan(view);
    if (recorder_ != nullptr) {
      recorder_->plan(view, plan);
    }
    apply_preemptions(plan);
    apply_admissions(plan, now);
    begin_transfers(plan);
    begin_write_through(plan);
    bind(plan);
    const bool requeued = enter_tokens(plan);
    if (!input_.slices.empty() || !input_.transfers.empty() || under_way_ > 0) {
      launched_ = now;
      in_flight_ = true;
      visits_before_ = executor_.tier_counts().visits;
      executor_.launch(input_);
      ++next_step_;
      return running_step();
    }
    if (tier_busy()) {
      return EngineActivity::kTierBusy;
    }
    if (plan.preempt.empty() && plan.offload.empty() && plan.onload.empty() && !requeued) {
      // Limits are checked when a request is accepted, so this is unreachable as long as policies
      // keep their guarantee; a policy that breaks it costs one request, not the server.
      fail_unschedulable(now);
    }
  }
  return EngineActivity::kIdle;
}

void Engine::fail_unschedulable(Nanos now) {
  LiveSequence* head = !running_.empty()   ? running_.front()
                       : !waiting_.empty() ? waiting_.front()
                                           : offloaded_.front();
  end(*head, FinishReason::kError, now,
      fmt::format("policy {} found no place for a sequence of {} tokens with {} of {} blocks of {} "
                  "tokens free",
                  policy_.name(), head->known_tokens(), kv_.free_blocks(), kv_.total_blocks(),
                  kv_.block_tokens()));
  remove_ended();
}

void Engine::apply_preemptions(const StepPlan& plan) {
  for (const SequenceId id : plan.preempt) {
    drop(*sequences_.at(id));
    ++record_.preempted;
  }
}

void Engine::apply_admissions(const StepPlan& plan, Nanos now) {
  for (const SequenceId id : plan.admit) {
    LiveSequence& sequence = *sequences_.at(id);
    std::erase(waiting_, &sequence);
    running_.push_back(&sequence);
    sequence.admission = next_admission_++;
    sequence.state.change_to(SequenceState::kAdmitted);
    const PrefixMatch match =
        kv_.attach(sequence.kv, sequence.cacheable(), sequence.known_tokens());
    sequence.computed_tokens = match.tokens;
    record_.prefix_queried_tokens += sequence.known_tokens();
    record_.prefix_hit_tokens += match.tokens;
    if (!sequence.admitted_before) {
      sequence.admitted_before = true;
      sequence.admitted = now;
      sequence.cached_tokens = match.tokens;
    }
  }
}

LiveSequence& Engine::running_sequence(SequenceId id, size_t& place) {
  if (place >= running_.size() || running_[place]->id != id) {
    LiveSequence& sequence = *sequences_.at(id);
    place = static_cast<size_t>(std::ranges::find(running_, &sequence) - running_.begin());
  }
  return *running_[place++];
}

// Gives every slice its tokens and blocks, and its samples where it reaches the last known token.
void Engine::bind(const StepPlan& plan) {
  input_.step = next_step_;
  input_.mode = plan.mode;
  input_.copies.clear();
  input_.slices.clear();
  step_samples_.clear();
  shape_ = {};
  record_.step = next_step_;
  size_t place = 0;  // policies name running sequences in order, by and large
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    LiveSequence& sequence = running_sequence(plan.slices[i].sequence, place);
    const int32_t first = sequence.computed_tokens;
    const int32_t tokens = plan.slices[i].tokens;
    if (kv_.needs_copy(sequence.kv, first)) {
      const std::optional<BlockCopy> copy = kv_.make_writable(sequence.kv, first);
      CHECK(copy.has_value(), "step {}: the plan counted a block for a copy, but none is free",
            next_step_);
      input_.copies.push_back(*copy);
    }
    const bool grown = kv_.grow(sequence.kv, first + tokens);
    CHECK(grown, "step {}: the plan spends more blocks than the {} that are free", next_step_,
          kv_.free_blocks());
    const bool decodes = sequence.output_tokens() > 0 && tokens == 1;
    (decodes ? record_.decode_tokens : record_.prefill_tokens) += tokens;

    record_.resident_rows += tokens;
    StepSlice slice;
    slice.sequence = sequence.id;
    slice.tokens =
        std::span(sequence.tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(tokens));
    slice.first_position = first;
    slice.block_table = sequence.kv.table();
    if (sequence.scores_prompt()) {
      const int32_t end = std::min(first + tokens + 1, sequence.prompt_tokens);
      slice.scored =
          std::span(sequence.tokens)
              .subspan(static_cast<size_t>(first) + 1, static_cast<size_t>(end - first - 1));
      slice.scored_top = sequence.prompt_logprobs;
    }
    const size_t samples_before = step_samples_.size();
    if (first + tokens == sequence.known_tokens()) {
      bind_samples(sequence);
    }
    input_.slices.push_back(slice);
    const size_t samples = step_samples_.size() - samples_before;
    step_parts_.push_back({&sequence, tokens, samples});
    if (decodes) {
      shape_.add_decode(int64_t{first} + 1);
    } else {
      shape_.add_prefill(first, tokens, static_cast<int32_t>(samples));
    }
  }
  // The samples have found their places.
  std::span<const SampleSpec> rest = step_samples_;
  for (size_t i = 0; i < step_parts_.size(); ++i) {
    input_.slices[i].samples = rest.first(step_parts_[i].samples);
    rest = rest.subspan(step_parts_[i].samples);
  }
}

SampleSpec Engine::sample_spec(const LiveSequence& sequence) {
  SampleSpec spec;
  spec.sequence = sequence.id;
  spec.params = &sequence.sampling();
  spec.seed = sequence.seed;
  spec.position = sequence.known_tokens();
  spec.prompt = std::span(sequence.tokens).first(static_cast<size_t>(sequence.prompt_tokens));
  spec.output = std::span(sequence.tokens).subspan(static_cast<size_t>(sequence.prompt_tokens));
  if (sequence.output_tokens() < sequence.min_tokens) {
    spec.banned = sequence.stop_ids;
  }
  return spec;
}

void Engine::bind_samples(LiveSequence& sequence) {
  SampleSpec spec = sample_spec(sequence);
  step_samples_.push_back(spec);
  for (size_t i = 0; i < sequence.forks.size(); ++i) {
    spec.sequence = sequence.forks[i];
    spec.seed = sequence.owner->seed + i + 1;
    step_samples_.push_back(spec);
  }
}

}  // namespace tandem
