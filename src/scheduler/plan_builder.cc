#include "scheduler/plan_builder.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {

PlanBuilder::PlanBuilder(const SystemView& view) : view_(view), budget_(view.budget) {
  plan_.slices.reserve(view.running.size());
  for (const SequenceView& sequence : view.running) {
    promise(sequence, promised(sequence), missing_blocks(sequence, sequence.known_tokens));
  }
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
    short_of_blocks_ = true;
    return Fit::kNoBlocks;
  }
  budget_.tokens -= tokens;
  budget_.logit_rows -= logit_rows;
  budget_.free_blocks -= blocks;
  const int64_t prompt =
      samples ? grown : std::min(grown, missing_blocks(sequence, sequence.known_tokens));
  promise(sequence, -std::min(blocks, promised(sequence)), -prompt);
  add_slice(sequence.id, tokens);
  return Fit::kFits;
}

PlanBuilder::Admission PlanBuilder::blocks_to_begin(const SequenceView& sequence,
                                                    int32_t tokens) const {
  const int64_t cached = sequence.computed_tokens / budget_.block_tokens;
  const int64_t in_use = cached - sequence.cached_free_blocks;
  Admission blocks;
  blocks.now = blocks_for(sequence.computed_tokens + tokens) - cached +
               sequence.cached_free_blocks + std::min(in_use, freed_blocks_);
  blocks.later =
      blocks_for(sequence.known_tokens + 1) - blocks_for(sequence.computed_tokens + tokens);
  blocks.taken_over = in_use;
  return blocks;
}

int64_t PlanBuilder::wanted(const Admission& admission, int64_t promised_blocks) const {
  const bool alone = promised_blocks_ == 0 && plan_.slices.empty();
  return alone ? admission.now : admission.now + admission.later + promised_blocks;
}

int64_t PlanBuilder::missing_to_admit(const SequenceView& sequence, int32_t tokens) const {
  const bool best_effort = sequence.service_class == ServiceClass::kBestEffort;
  const int64_t promised =
      best_effort ? promised_blocks_ : promised_blocks_ - promised_best_effort_;
  return wanted(blocks_to_begin(sequence, tokens), promised) - budget_.free_blocks;
}

Fit PlanBuilder::admit_beside(const SequenceView& sequence, int32_t tokens,
                              int64_t promised_blocks) {
  CHECK(tokens >= 1 && tokens <= sequence.pending_tokens(),
        "{} tokens of a sequence with {} pending", tokens, sequence.pending_tokens());
  const int32_t logit_rows = tokens == sequence.pending_tokens() ? sequence.choices : 0;
  if (sequence.choices > budget_.sequences) {
    return Fit::kNoSequences;
  }
  if (tokens > budget_.tokens) {
    return Fit::kNoTokens;
  }
  if (logit_rows > budget_.logit_rows) {
    return Fit::kNoLogitRows;
  }
  const Admission blocks = blocks_to_begin(sequence, tokens);
  if (wanted(blocks, promised_blocks) > budget_.free_blocks) {
    return Fit::kNoBlocks;
  }
  budget_.sequences -= sequence.choices;
  budget_.tokens -= tokens;
  budget_.logit_rows -= logit_rows;
  budget_.free_blocks -= blocks.now;
  promise(sequence, blocks.later, blocks.later);
  const int64_t freed = std::min(blocks.taken_over, freed_blocks_);
  freed_blocks_ -= freed;
  taken_over_ += blocks.taken_over - freed;
  plan_.admit.push_back(sequence.id);
  add_slice(sequence.id, tokens);
  return Fit::kFits;
}

bool PlanBuilder::may_go_straight_to_host(const SequenceView& sequence) const {
  return sequence.computed_tokens == 0 && sequence.choices == 1 && sequence.host_failures == 0 &&
         sequence.known_tokens <= view_.budget.tokens &&
         blocks_for(sequence.known_tokens) <= view_.budget.staging_blocks &&
         blocks_for(sequence.known_tokens + 1) <= view_.budget.host_total_blocks;
}

Fit PlanBuilder::admit_to_host(const SequenceView& sequence) {
  CHECK(may_go_straight_to_host(sequence), "a sequence of {} tokens, {} computed, goes to the host",
        sequence.known_tokens, sequence.computed_tokens);
  const int64_t blocks = blocks_for(sequence.known_tokens);
  const int64_t host_blocks = blocks_for(sequence.known_tokens + 1);
  if (sequence.known_tokens > budget_.tokens) {
    return Fit::kNoTokens;
  }
  if (budget_.logit_rows < 1 || slices_left() < 1) {
    return Fit::kNoLogitRows;
  }
  if (host_blocks > budget_.host_free_blocks) {
    return Fit::kNoHostBlocks;
  }
  if (blocks > budget_.staging_blocks) {
    return Fit::kNoStagingBlocks;
  }
  budget_.tokens -= sequence.known_tokens;
  budget_.logit_rows -= 1;
  budget_.host_free_blocks -= host_blocks;
  budget_.staging_blocks -= static_cast<int32_t>(blocks);
  plan_.admit.push_back(sequence.id);
  plan_.straight_to_host.push_back(sequence.id);
  add_slice(sequence.id, sequence.known_tokens);
  return Fit::kFits;
}

Fit PlanBuilder::offload(const SequenceView& sequence) {
  const int64_t needed = blocks_to_hold(sequence);
  if (needed > budget_.host_free_blocks) {
    return Fit::kNoHostBlocks;
  }
  budget_.host_free_blocks -= needed;
  promise(sequence, -promised(sequence), -missing_blocks(sequence, sequence.known_tokens));
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
  const int64_t kept = std::min<int64_t>(sequence.own_blocks, taken_over_);
  taken_over_ -= kept;
  freed_blocks_ += sequence.own_blocks - kept;
  budget_.free_blocks += sequence.own_blocks - kept;
  promise(sequence, -promised(sequence), -missing_blocks(sequence, sequence.known_tokens));
}

StepPlan PlanBuilder::finish() {
  const bool nothing_happens = plan_.slices.empty() && plan_.preempt.empty() &&
                               plan_.offload.empty() && plan_.onload.empty();
  const auto leaves = [](const SequenceView& sequence) {
    return sequence.state == SequenceState::kOffloading;
  };
  if (short_of_blocks_ && nothing_happens && std::ranges::none_of(view_.offloaded, leaves)) {
    drop_a_sharer();
  }
  return std::move(plan_);
}

// The next plan then sees what that has changed: of two sequences that shared a block the other one
// need not copy it any more.
void PlanBuilder::drop_a_sharer() {
  const SequenceView* newest = nullptr;
  for (const SequenceView& sequence : view_.running) {
    const bool shares_all = sequence.own_blocks == 0 && sequence.copy_blocks > 0;
    if (shares_all && (newest == nullptr || sequence.service_class >= newest->service_class)) {
      newest = &sequence;
    }
  }
  if (newest != nullptr) {
    preempt(*newest);
  }
}

}  // namespace tandem
