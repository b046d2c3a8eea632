#include "engine/step_committer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "engine/prefetch.h"

namespace tandem {

void StepCommitter::learn(const StepResult& result) {
  if (step_times_ == nullptr || step_.shape.rows() == 0) {
    return;
  }
  step_.shape.visitor_logits = static_cast<int32_t>(result.visitors.size());
  // An executor that does not count visits reports 0.
  step_.shape.visits = std::max(result.visits - step_.shape.visitor_logits, int64_t{0});
  // A record may hold any numbers.
  const SecondLane& second = result.second;
  step_.shape.has_lanes = step_.input.mode == StepMode::kLanes && result.visits > 0;
  if (step_.shape.has_lanes) {
    step_.shape.second_visits = std::clamp(second.visits, int64_t{0}, step_.shape.visits);
    step_.shape.second_stages = std::clamp(second.stages, 0, step_times_->layers());
    step_.shape.second_logits = std::clamp(second.logits, 0, step_.shape.visitor_logits);
  }
  step_.record.predicted = step_times_->step_time(step_.shape);
  step_.record.regime = latency::regime_name(latency::regime_of(step_.shape));
  step_.record.correction = step_times_->correction(step_.shape);
  step_.record.held = result.held;
  step_times_->observe(step_.shape, step_.record.duration - result.held);
}

void StepCommitter::commit(StepResult& result) {
  std::span<const SampleSpec> specs = step_.samples;
  std::span<SampledToken> samples = result.samples;
  std::span<LogprobInfo> scored = result.scored;
  CHECK(samples.size() == specs.size(), "step {}: {} samples of {}", result.step, samples.size(),
        specs.size());
  const auto sequence_of = [](const StepPart& part) { return part.sequence; };
  prefetch_sequences(step_.parts, sequence_of);
  prefetch_next_tokens(step_.parts, sequence_of);
  for (size_t i = 0; i < step_.parts.size(); ++i) {
    const StepPart& part = step_.parts[i];
    commit_slice(*part.sequence, part.tokens);
    if (part.scores > 0) {
      const auto scores = static_cast<size_t>(part.scores);
      CHECK(scores <= scored.size(), "step {}: {} scores", result.step, result.scored.size());
      commit_scores(*part.sequence, step_.input.slices[i], scored.first(scores));
      scored = scored.subspan(scores);
    }
    if (part.samples > 0) {
      const auto count = static_cast<size_t>(part.samples);
      commit_samples(part, specs.first(count), samples.first(count));
      if (part.sequence->kv.tier() == Tier::kHost &&
          part.sequence->state.state() == SequenceState::kDecoding) {
        mover_.arrived_on_host(*part.sequence);
      }
      specs = specs.subspan(count);
      samples = samples.subspan(count);
    }
  }
  step_.parts.clear();
  for (SampledToken& sampled : result.visitors) {
    commit_visitor(sampled);
  }
  table_.remove_ended(kv_);
}

void StepCommitter::commit_samples(const StepPart& part, std::span<const SampleSpec> specs,
                                   std::span<SampledToken> samples) {
  LiveSequence& sequence = *part.sequence;
  if (sequence.scores_prompt()) {
    add_prompt_event(sequence);
  }
  if (sequence.choices > 1) {
    // Before the first token is appended: all choices share the prompt alone.
    table_.make_forks(sequence, kv_);
  }
  CHECK(samples.front().sequence == sequence.id, "a sample of sequence {} instead of {}",
        raw(samples.front().sequence), raw(sequence.id));
  accept_token(sequence, samples.front());
  for (size_t i = 1; i < samples.size(); ++i) {
    CHECK(samples[i].sequence == specs[i].sequence, "a sample of sequence {} instead of {}",
          raw(samples[i].sequence), raw(specs[i].sequence));
    accept_token(table_.at(samples[i].sequence), samples[i]);
  }
}

// These tokens have KV now.
void StepCommitter::count_computed(LiveSequence& sequence, int32_t tokens) {
  sequence.computed_tokens += tokens;
  if (!kv_.registers(sequence.kv, sequence.computed_tokens)) {
    return;
  }
  extend_hashes(sequence.hashes, sequence.owner->root,
                std::span(sequence.tokens).first(static_cast<size_t>(sequence.computed_tokens)),
                kv_.block_tokens());
  kv_.register_computed(sequence.kv, sequence.hashes, sequence.computed_tokens);
}

void StepCommitter::commit_slice(LiveSequence& sequence, int32_t tokens) {
  count_computed(sequence, tokens);
  const bool done = sequence.computed_tokens == sequence.known_tokens();
  const SequenceState state = done ? SequenceState::kDecoding : SequenceState::kPrefilling;
  if (sequence.state.state() != state) {
    table_.change(sequence, state);
  }
}

void StepCommitter::commit_visitor(SampledToken& sampled) {
  LiveSequence* sequence = table_.find(sampled.sequence);
  CHECK(sequence != nullptr && sequence->state.state() == SequenceState::kParkedInFlight,
        "a visitor's sample of sequence {}, which has no token in flight", raw(sampled.sequence));
  ++step_.record.decode_tokens;
  count_computed(*sequence, 1);
  mover_.token_computed(*sequence);
  accept_token(*sequence, sampled);
}

void StepCommitter::commit_scores(LiveSequence& sequence, const StepSlice& slice,
                                  std::span<LogprobInfo> scores) {
  for (size_t i = 0; i < scores.size(); ++i) {
    // Some are known already if a prompt is computed again.
    if (static_cast<size_t>(slice.first_position) + i == sequence.prompt_scores.size()) {
      sequence.prompt_scores.push_back(std::move(scores[i]));
    }
  }
}

void StepCommitter::add_prompt_event(LiveSequence& sequence) {
  CHECK(std::ssize(sequence.prompt_scores) + 1 == sequence.prompt_tokens,
        "{} scores of a prompt of {} tokens", sequence.prompt_scores.size(),
        sequence.prompt_tokens);
  auto scores = std::exchange(sequence.prompt_scores, {});
  if (TokenEvent* event = outbox_.add(sequence, TokenEvent::Kind::kPrompt, sequence.choice)) {
    event->prompt_logprobs = std::make_unique<std::vector<LogprobInfo>>(std::move(scores));
  }
}

void StepCommitter::record_first_token(LiveSequence& sequence) {
  sequence.first_token = step_.now;
  if (sequence.choice != 0) {
    return;
  }
  observe::StepRecord& record = step_.record;
  record.prompt_tokens += sequence.prompt_tokens;
  record.cached_tokens += sequence.cached_tokens;
  record.first_token_times[static_cast<size_t>(sequence.service_class)].push_back(
      step_.now - sequence.owner->arrived);
  if (sequence.promised) {
    const bool due = sequence.first_token_due < Nanos::max();
    record.promised_first_tokens.push_back(
        {.forecast = *sequence.owner->forecast_ttft,
         .real = step_.now - sequence.arrived,
         .target = due ? sequence.first_token_due - sequence.arrived : Nanos::max()});
  }
}

void StepCommitter::accept_token(LiveSequence& sequence, SampledToken& sampled) {
  if (sampled.token < 0) {
    finisher_.finish(sequence, FinishReason::kError, step_.now,
                     "the model produced no finite logits for this request; its weights or the "
                     "request's logit_bias are broken");
    return;
  }
  ++step_.record.sampled_tokens;
  sequence.tokens.push_back(sampled.token);
  table_.count_output(sequence);
  if (sequence.output_tokens() == 1) {
    record_first_token(sequence);
  } else {
    const Nanos gap = step_.now - sequence.last_token;
    sequence.most_gap = std::max(sequence.most_gap, gap);
    step_.record.add_token_gap(sequence.service_class, gap);
  }
  sequence.last_token = step_.now;
  if (std::ranges::count(sequence.stop_ids, sampled.token) > 0) {
    finisher_.finish(sequence, FinishReason::kStop, step_.now);
    return;
  }
  if (TokenEvent* event = outbox_.add(sequence, TokenEvent::Kind::kToken, sequence.choice)) {
    event->token = sampled.token;
    event->logprobs = std::move(sampled.logprobs);
  }
  if (sequence.output_tokens() >= sequence.max_tokens ||
      sequence.known_tokens() >= max_model_len_) {
    finisher_.finish(sequence, FinishReason::kLength, step_.now);
  }
}

}  // namespace tandem
