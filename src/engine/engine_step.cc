// The part of Engine that makes a step: commit the finished one, plan, bind, launch.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/prefetch.h"

namespace tandem {

// ---------------------------------------------------------------- commit

void Engine::commit(StepResult& result, Nanos now) {
  std::span<const SampleSpec> specs = step_samples_;
  std::span<SampledToken> samples = result.samples;
  std::span<LogprobInfo> scored = result.scored;
  CHECK(samples.size() == specs.size(), "step {}: {} samples of {}", result.step, samples.size(),
        specs.size());
  const auto sequence_of = [](const StepPart& part) { return part.sequence; };
  prefetch_sequences(step_parts_, sequence_of);
  prefetch_next_tokens(step_parts_, sequence_of);
  for (size_t i = 0; i < step_parts_.size(); ++i) {
    const StepPart& part = step_parts_[i];
    commit_slice(*part.sequence, part.tokens);
    if (part.scores > 0) {
      const auto scores = static_cast<size_t>(part.scores);
      CHECK(scores <= scored.size(), "step {}: {} scores", result.step, result.scored.size());
      commit_scores(*part.sequence, input_.slices[i], scored.first(scores));
      scored = scored.subspan(scores);
    }
    if (part.samples > 0) {
      const auto count = static_cast<size_t>(part.samples);
      commit_samples(part, specs.first(count), samples.first(count), now);
      specs = specs.subspan(count);
      samples = samples.subspan(count);
    }
  }
  step_parts_.clear();
  for (SampledToken& sampled : result.visitors) {
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

void Engine::commit_samples(const StepPart& part, std::span<const SampleSpec> specs,
                            std::span<SampledToken> samples, Nanos now) {
  LiveSequence& sequence = *part.sequence;
  if (sequence.scores_prompt()) {
    emit_prompt(sequence);
  }
  if (sequence.choices > 1) {
    make_forks(sequence);  // before the first token is appended: all choices share the prompt alone
  }
  CHECK(samples.front().sequence == sequence.id, "a sample of sequence {} instead of {}",
        raw(samples.front().sequence), raw(sequence.id));
  accept_token(sequence, samples.front(), now);
  for (size_t i = 1; i < samples.size(); ++i) {
    CHECK(samples[i].sequence == specs[i].sequence, "a sample of sequence {} instead of {}",
          raw(samples[i].sequence), raw(specs[i].sequence));
    accept_token(sequences_.at(samples[i].sequence), samples[i], now);
  }
}

// These tokens have KV now.
void Engine::count_computed(LiveSequence& sequence, int32_t tokens) {
  sequence.computed_tokens += tokens;
  if (!kv_.registers(sequence.kv, sequence.computed_tokens)) {
    return;
  }
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

void Engine::commit_visitor(SampledToken& sampled, Nanos now) {
  const auto found = sequences_.find(sampled.sequence);
  CHECK(found != sequences_.end() && found->second.state.state() == SequenceState::kParkedInFlight,
        "a visitor's sample of sequence {}, which has no token under way", raw(sampled.sequence));
  LiveSequence& sequence = found->second;
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
  auto scores = std::exchange(sequence.prompt_scores, {});
  if (TokenEvent* event = emit(sequence, TokenEvent::Kind::kPrompt, sequence.choice)) {
    event->prompt_logprobs = std::make_unique<std::vector<LogprobInfo>>(std::move(scores));
  }
}

void Engine::make_forks(LiveSequence& parent) {
  std::vector<SequenceId>& ids = by_request_.at(parent.owner->id);
  const auto place = std::ranges::find(running_, &parent);
  auto after = place + 1;
  for (size_t i = 0; i < parent.forks.size(); ++i) {
    LiveSequence& fork = sequences_[parent.forks[i]];
    fork.id = parent.forks[i];
    fork.set_owner(parent.owner);
    fork.choice = static_cast<int32_t>(i) + 1;
    fork.state = parent.state;
    fork.tokens = parent.tokens;
    fork.prompt_tokens = parent.prompt_tokens;
    fork.computed_tokens = parent.computed_tokens;
    fork.kv = kv_.fork(parent.kv, parent.computed_tokens);
    fork.hashes = parent.hashes;
    fork.seed = parent.owner->seed + i + 1;
    fork.cached_tokens = parent.cached_tokens;
    fork.admitted_before = true;
    fork.admission = parent.admission;
    fork.admitted = parent.admitted;
    fork.preemptions = parent.preemptions;
    fork.parked = parent.parked;
    ids.push_back(fork.id);
    after = running_.insert(after, &fork) + 1;
  }
  parent.forks.clear();
  parent.choices = 1;
}

void Engine::accept_token(LiveSequence& sequence, SampledToken& sampled, Nanos now) {
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
      if (sequence.promised) {
        const bool due = sequence.first_token_due < Nanos::max();
        record_.promised_first_tokens.push_back(
            {.forecast = *sequence.owner->forecast_ttft,
             .real = now - sequence.arrived,
             .target = due ? sequence.first_token_due - sequence.arrived : Nanos::max()});
      }
    }
  } else {
    const Nanos gap = now - sequence.last_token;
    sequence.most_gap = std::max(sequence.most_gap, gap);
    record_.add_token_gap(sequence.service_class, gap);
  }
  sequence.last_token = now;
  if (std::ranges::count(sequence.stop_ids, sampled.token) > 0) {
    end(sequence, FinishReason::kStop, now);
    return;
  }
  if (TokenEvent* event = emit(sequence, TokenEvent::Kind::kToken, sequence.choice)) {
    event->token = sampled.token;
    event->logprobs = std::move(sampled.logprobs);
  }
  if (sequence.output_tokens() >= sequence.max_tokens ||
      sequence.known_tokens() >= config_.max_model_len) {
    end(sequence, FinishReason::kLength, now);
  }
}

// ---------------------------------------------------------------- plan and launch

EngineActivity Engine::plan_and_launch(Nanos now) {
  record_ = {};
  size_t without_step = 0;  // plans so far
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
    const bool moved = begin_transfers(plan);
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
    // Limits are checked when a request is accepted, so this is unreachable as long as policies
    // keep their guarantee; a policy that breaks it, or drops and admits the same sequences in
    // turn, costs one request, not the server.
    constexpr size_t kMovesOfASequence = 4;
    const bool changed = moved || requeued || !plan.preempt.empty();
    if (!changed || ++without_step > kMovesOfASequence * sequences_.size()) {
      without_step = 0;
      fail_unschedulable(now);
    }
  }
  return tier_busy() ? EngineActivity::kTierBusy : EngineActivity::kIdle;
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
    drop(sequences_.at(id));
    ++record_.preempted;
  }
}

void Engine::apply_admissions(const StepPlan& plan, Nanos now) {
  for (const SequenceId id : plan.admit) {
    LiveSequence& sequence = sequences_.at(id);
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

LiveSequence* Engine::running_sequence(SequenceId id, size_t& place) {
  if (place >= running_.size() || running_[place]->id != id) {
    const auto found = std::ranges::find(running_, id, &LiveSequence::id);
    if (found == running_.end()) {
      return nullptr;
    }
    place = static_cast<size_t>(found - running_.begin());
  }
  return running_[place++];
}

// Gives every slice its tokens and blocks, and its samples where it reaches the last known token. A
// slice for which there is no room after all is left out: its sequence waits for a later step.
void Engine::bind(const StepPlan& plan) {
  input_.step = next_step_;
  input_.mode = plan.mode;
  input_.copies.clear();
  input_.slices.resize(plan.slices.size());
  step_samples_.clear();
  step_samples_.reserve(static_cast<size_t>(executor_.limits().max_logit_rows));  // slices point in
  shape_ = {};
  record_.step = next_step_;
  size_t place = 0;  // policies name running sequences in order, by and large
  size_t bound = 0;
  for (const StepPlan::Slice& slice : plan.slices) {
    LiveSequence* sequence = running_sequence(slice.sequence, place);
    if (sequence != nullptr) {
      prefetch_for_layout(*sequence);
    }
    if (sequence == nullptr || !has_rows(*sequence, slice.tokens) ||
        !make_writable(*sequence, slice.tokens)) {
      put_off("a slice", slice.sequence);
      continue;
    }
    bind_slice(*sequence, slice.tokens, input_.slices[bound++]);
  }
  input_.slices.resize(bound);
}

void Engine::put_off(std::string_view what, SequenceId sequence) {
  ++record_.put_off;
  if (std::has_single_bit(++put_off_)) {  // rarely, however often it happens
    log::error(
        "step {}: policy {} planned {} of sequence {} without room for it ({} of {} KV blocks are "
        "free, {} of {} on the host); it waits for a later step. This is a bug in the policy. It "
        "has happened {} times",
        next_step_, policy_.name(), what, raw(sequence), kv_.free_blocks(), kv_.total_blocks(),
        kv_.free_blocks(Tier::kHost), kv_.total_blocks(Tier::kHost), put_off_);
  }
}

// So many of its next tokens, and their samples, beside what is bound already.
bool Engine::has_rows(const LiveSequence& sequence, int32_t tokens) const {
  const int32_t pending = sequence.known_tokens() - sequence.computed_tokens;
  if (tokens < 1 || tokens > pending ||
      record_.resident_rows + tokens > executor_.limits().max_batched_tokens) {
    return false;
  }
  return tokens < pending ||
         step_samples_.size() + static_cast<size_t>(sequence.choices) <= step_samples_.capacity();
}

// The places of its next tokens. False, and nothing changed, when there are not enough free blocks.
bool Engine::make_writable(LiveSequence& sequence, int32_t tokens) {
  const int32_t first = sequence.computed_tokens;
  if (!kv_.needs_copy(sequence.kv, first)) {
    return kv_.grow(sequence.kv, first + tokens);
  }
  const int32_t grown = std::max(kv_.blocks_for(first + tokens) - sequence.kv.blocks(), 0);
  if (1 + grown > kv_.free_blocks()) {
    return false;
  }
  const std::optional<BlockCopy> copy = kv_.make_writable(sequence.kv, first);
  CHECK(copy.has_value() && kv_.grow(sequence.kv, first + tokens),
        "{} blocks were free, but {} could not be taken", kv_.free_blocks(), 1 + grown);
  input_.copies.push_back(*copy);
  return true;
}

void Engine::bind_slice(LiveSequence& sequence, int32_t tokens, StepSlice& slice) {
  const int32_t first = sequence.computed_tokens;
  slice.sequence = sequence.id;
  slice.tokens =
      std::span(sequence.tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(tokens));
  slice.first_position = first;
  slice.block_table = sequence.kv.table();
  slice.scored = {};
  slice.scored_top = 0;
  if (sequence.scores_prompt()) {
    const int32_t end = std::min(first + tokens + 1, sequence.prompt_tokens);
    slice.scored =
        std::span(sequence.tokens)
            .subspan(static_cast<size_t>(first) + 1, static_cast<size_t>(end - first - 1));
    slice.scored_top = sequence.prompt_logprobs;
  }
  slice.samples = {};
  if (first + tokens == sequence.known_tokens()) {
    slice.samples = bind_samples(sequence);
  }
  const auto samples = static_cast<int32_t>(slice.samples.size());
  StepPart& part = step_parts_.emplace_back();
  part.sequence = &sequence;
  part.tokens = tokens;
  part.samples = samples;
  part.scores = static_cast<int32_t>(slice.scored.size());
  record_.resident_rows += tokens;
  if (sequence.output_tokens() > 0 && tokens == 1) {
    record_.decode_tokens += tokens;
    shape_.add_decode(int64_t{first} + 1);
  } else {
    record_.prefill_tokens += tokens;
    shape_.add_prefill(first, tokens, samples);
  }
}

void Engine::fill_sample(const LiveSequence& sequence, SampleSpec& spec) {
  spec.sequence = sequence.id;
  spec.params = &sequence.sampling();
  spec.seed = sequence.seed;
  spec.position = sequence.known_tokens();
  spec.prompt = std::span(sequence.tokens).first(static_cast<size_t>(sequence.prompt_tokens));
  spec.output = std::span(sequence.tokens).subspan(static_cast<size_t>(sequence.prompt_tokens));
  if (sequence.output_tokens() < sequence.min_tokens) {
    spec.banned = sequence.stop_ids;
  }
}

std::span<const SampleSpec> Engine::bind_samples(const LiveSequence& sequence) {
  const size_t begin = step_samples_.size();
  const auto choices = static_cast<size_t>(sequence.choices);
  CHECK(begin + choices <= step_samples_.capacity(), "step {}: {} samples, at most {}", next_step_,
        begin + choices, executor_.limits().max_logit_rows);
  SampleSpec& first = step_samples_.emplace_back();
  fill_sample(sequence, first);
  for (size_t i = 0; i + 1 < choices; ++i) {
    SampleSpec spec = first;
    spec.sequence = sequence.forks[i];
    spec.seed = sequence.owner->seed + i + 1;
    step_samples_.push_back(spec);
  }
  return std::span<const SampleSpec>(step_samples_).subspan(begin);
}

}  // namespace tandem
