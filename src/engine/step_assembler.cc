#include "engine/step_assembler.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "engine/prefetch.h"
#include "engine/sample_spec.h"

namespace tandem {

void StepAssembler::begin() {
  step_.input.transfers.clear();
  step_.input.lane_moves.clear();
  step_.input.entering.clear();
}

bool StepAssembler::assemble(const StepPlan& plan) {
  straight_ = plan.straight_to_host;
  std::ranges::sort(straight_);
  staging_blocks_ = 0;
  preempt(plan);
  admit(plan);
  const bool moved = mover_.begin_transfers(plan);
  bind(plan);
  mover_.begin_write_through(plan);  // with the host blocks that are left
  mover_.move_lanes(plan);
  const bool requeued = mover_.enter_tokens(plan);
  return moved || requeued || !plan.preempt.empty();
}

void StepAssembler::preempt(const StepPlan& plan) {
  for (const SequenceId id : plan.preempt) {
    mover_.drop(table_.at(id));
    ++step_.record.preempted;
  }
}

void StepAssembler::admit(const StepPlan& plan) {
  for (const SequenceId id : plan.admit) {
    LiveSequence& sequence = table_.at(id);
    table_.admit(sequence);
    const bool straight = std::ranges::binary_search(straight_, id);
    const PrefixMatch match =
        straight ? PrefixMatch{}
                 : kv_.attach(sequence.kv, sequence.cacheable(), sequence.known_tokens());
    sequence.computed_tokens = match.tokens;
    step_.record.prefix_queried_tokens += sequence.known_tokens();
    step_.record.prefix_hit_tokens += match.tokens;
    if (!sequence.admitted_before) {
      sequence.admitted_before = true;
      sequence.admitted = step_.now;
      sequence.cached_tokens = match.tokens;
    }
  }
}

// Whether so many of its next tokens, and their samples, fit beside what is bound already.
inline bool StepAssembler::has_rows(const LiveSequence& sequence, int32_t tokens) const {
  const int32_t pending = sequence.known_tokens() - sequence.computed_tokens;
  if (tokens < 1 || tokens > pending ||
      step_.record.resident_rows + tokens > limits_.max_batched_tokens) {
    return false;
  }
  return tokens < pending ||
         step_.samples.size() + static_cast<size_t>(sequence.choices) <= step_.samples.capacity();
}

// Gives every slice its tokens and blocks, and its samples if it reaches the last known token.
void StepAssembler::bind(const StepPlan& plan) {
  StepInput& input = step_.input;
  input.step = step_.number;
  input.mode = plan.mode;
  input.copies.clear();
  input.slices.resize(plan.slices.size());
  step_.samples.clear();
  step_.samples.reserve(static_cast<size_t>(limits_.max_logit_rows));  // slices point into it
  step_.shape = {};
  step_.record.step = step_.number;
  size_t bound = 0;
  // Slices that go straight to the host come last.
  for (const Tier tier : {Tier::kAccelerator, Tier::kHost}) {
    size_t place = 0;  // policies name running sequences in order, by and large
    for (const StepPlan::Slice& slice : plan.slices) {
      const bool straight =
          !straight_.empty() && std::ranges::binary_search(straight_, slice.sequence);
      if (straight != (tier == Tier::kHost)) {
        continue;
      }
      LiveSequence* sequence = table_.running_at(slice.sequence, place);
      if (sequence != nullptr) {
        prefetch_for_layout(*sequence);
      }
      if (sequence == nullptr || !has_rows(*sequence, slice.tokens) ||
          !(straight ? place_on_host(*sequence, slice.tokens)
                     : make_writable(*sequence, slice.tokens))) {
        shortfalls_.add("a slice", slice.sequence);
        continue;
      }
      bind_slice(*sequence, slice.tokens, input.slices[bound++]);
    }
    if (straight_.empty()) {
      break;
    }
  }
  input.slices.resize(bound);
}

// The places of its next tokens. False, and nothing changed: there are not enough free blocks.
bool StepAssembler::make_writable(LiveSequence& sequence, int32_t tokens) {
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
  step_.input.copies.push_back(*copy);
  return true;
}

// Host blocks for all of its tokens. False, and nothing changed: it cannot go straight to the host
// in this step, and runs like any other that was admitted.
bool StepAssembler::place_on_host(LiveSequence& sequence, int32_t tokens) {
  const int32_t blocks = kv_.blocks_for(tokens);
  const bool is_whole = sequence.kv.blocks() == 0 && tokens == sequence.known_tokens();
  if (!is_whole || sequence.choices != 1 || staging_blocks_ + blocks > limits_.staging_blocks ||
      std::ssize(step_.parts) >= limits_.max_logit_rows) {
    return false;
  }
  kv_.begin_on(sequence.kv, Tier::kHost);
  if (!kv_.grow(sequence.kv, tokens)) {
    kv_.begin_on(sequence.kv, Tier::kAccelerator);
    return false;
  }
  staging_blocks_ += blocks;
  ++step_.record.straight_to_host;
  return true;
}

void StepAssembler::bind_slice(LiveSequence& sequence, int32_t tokens, StepSlice& slice) {
  const int32_t first = sequence.computed_tokens;
  slice.sequence = sequence.id;
  slice.tokens =
      std::span(sequence.tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(tokens));
  slice.first_position = first;
  slice.block_table = sequence.kv.table();
  slice.tier = sequence.kv.tier();
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
  StepPart& part = step_.parts.emplace_back();
  part.sequence = &sequence;
  part.tokens = tokens;
  part.samples = samples;
  part.scores = static_cast<int32_t>(slice.scored.size());
  step_.record.resident_rows += tokens;
  if (sequence.output_tokens() > 0 && tokens == 1) {
    step_.record.decode_tokens += tokens;
    step_.shape.add_decode(int64_t{first} + 1);
  } else {
    step_.record.prefill_tokens += tokens;
    step_.shape.add_prefill(first, tokens, samples);
  }
}

std::span<const SampleSpec> StepAssembler::bind_samples(const LiveSequence& sequence) {
  const size_t begin = step_.samples.size();
  const auto choices = static_cast<size_t>(sequence.choices);
  CHECK(begin + choices <= step_.samples.capacity(), "step {}: {} samples, at most {}",
        step_.number, begin + choices, limits_.max_logit_rows);
  SampleSpec& first = step_.samples.emplace_back();
  fill_sample(sequence, first);
  for (size_t i = 0; i + 1 < choices; ++i) {
    SampleSpec spec = first;
    spec.sequence = sequence.forks[i];
    spec.seed = sequence.owner->seed + i + 1;
    step_.samples.push_back(spec);
  }
  return std::span<const SampleSpec>(step_.samples).subspan(begin);
}

}  // namespace tandem
