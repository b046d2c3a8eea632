#include "scheduler/plan_builder.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {

PlanBuilder::PlanBuilder(const SystemView& view) : budget_(view.budget) {
  plan_.slices.reserve(view.running.size());
  for (const SequenceView& sequence : view.running) {
    promise(sequence, promised(sequence));
  }
}

int64_t PlanBuilder::promised(const SequenceView& sequence) const {
  return missing_blocks(sequence, sequence.known_tokens);
}

Fit PlanBuilder::add(const SequenceView& sequence, int32_t tokens) {
  CHECK(tokens >= 1 && tokens <= sequence.pending_tokens(),
        "{} tokens of a sequence with {} pending", tokens, sequence.pending_tokens());
  const bool samples = tokens == sequence.pending_tokens();
  const int32_t logit_rows = samples ? sequence.choices : 0;
  const int64_t grown = missing_blocks(sequence, sequence.computed_tokens + tokens);
  const int64_t blocks = grown + sequence.copy_blocks;
  if (tokens > budget_.tokens) {
    return Fit::kNoTokens;
  }
  if (logit_rows > budget_.logit_rows) {
    return Fit::kNoLogitRows;
  }
  if (blocks > budget_.free_blocks) {
    return Fit::kNoBlocks;
  }
  budget_.tokens -= tokens;
  budget_.logit_rows -= logit_rows;
  budget_.free_blocks -= blocks;
  promise(sequence, -std::min(grown, promised(sequence)));
  add_slice(sequence.id, tokens);
  return Fit::kFits;
}

Fit PlanBuilder::admit_beside(const SequenceView& sequence, int32_t tokens,
                              int64_t promised_blocks) {
  CHECK(tokens >= 1 && tokens <= sequence.pending_tokens(),
        "{} tokens of a sequence with {} pending", tokens, sequence.pending_tokens());
  const int32_t logit_rows = tokens == sequence.pending_tokens() ? sequence.choices : 0;
  const int64_t cached_blocks = sequence.computed_tokens / budget_.block_tokens;
  const int64_t all_new = blocks_for(sequence.known_tokens + 1) - cached_blocks;
  const int64_t now_new = blocks_for(sequence.computed_tokens + tokens) - cached_blocks;
  if (sequence.choices > budget_.sequences) {
    return Fit::kNoSequences;
  }
  if (tokens > budget_.tokens) {
    return Fit::kNoTokens;
  }
  if (logit_rows > budget_.logit_rows) {
    return Fit::kNoLogitRows;
  }
  const bool alone = promised_blocks_ == 0 && plan_.slices.empty();
  const int64_t wanted = alone ? now_new : all_new + promised_blocks;
  if (wanted + sequence.cached_free_blocks > budget_.free_blocks) {
    return Fit::kNoBlocks;
  }
  budget_.sequences -= sequence.choices;
  budget_.tokens -= tokens;
  budget_.logit_rows -= logit_rows;
  budget_.free_blocks -= now_new + sequence.cached_free_blocks;
  promise(sequence, all_new - now_new);
  plan_.admit.push_back(sequence.id);
  add_slice(sequence.id, tokens);
  return Fit::kFits;
}

Fit PlanBuilder::offload(const SequenceView& sequence) {
  const int64_t needed = blocks_to_hold(sequence);
  if (needed > budget_.host_free_blocks) {
    return Fit::kNoHostBlocks;
  }
  budget_.host_free_blocks -= needed;
  promise(sequence, -promised(sequence));
  plan_.offload.push_back(sequence.id);
  return Fit::kFits;
}

Fit PlanBuilder::onload(const SequenceView& sequence) {
  if (budget_.sequences < 1) {
    return Fit::kNoSequences;
  }
  const int64_t needed =
      std::max<int64_t>(sequence.transfer_blocks, blocks_for(sequence.known_tokens));
  if (needed > budget_.free_blocks) {
    return Fit::kNoBlocks;
  }
  --budget_.sequences;
  budget_.free_blocks -= needed;
  plan_.onload.push_back(sequence.id);
  return Fit::kFits;
}

void PlanBuilder::preempt(const SequenceView& sequence) {
  plan_.preempt.push_back(sequence.id);
  if (sequence.tier == Tier::kHost) {
    return;  // what it frees is elsewhere, and not before it has left
  }
  budget_.free_blocks += sequence.own_blocks;
  promise(sequence, -promised(sequence));
}

}  // namespace tandem
