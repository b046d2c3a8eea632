// Collects a step plan and keeps its budgets: whatever does not fit is refused and changes nothing.
// Shared by all policies. Lives for one planning; borrows the view.
//
// A finished plan never needs more blocks than there are, in whatever order its parts were added.
// A waiting sequence takes blocks of its cached prefix over from running sequences. If one of these
// is dropped in the same plan, before or after the admission, only those of its blocks are counted
// as free that the admitted sequence does not need.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/decisions.h"
#include "plan/views.h"

namespace tandem {

enum class Fit : uint8_t {
  kFits,
  kNoTokens,  // activation rows of the step are used up
  kNoLogitRows,
  kNoSequences,  // as many sequences run as may
  kNoBlocks,
  kNoHostBlocks,
  kNoStagingBlocks,
};

class PlanBuilder {
 public:
  explicit PlanBuilder(const SystemView& view);

  // The next `tokens` (>= 1, at most what is pending) of a running sequence.
  Fit add(const SequenceView& sequence, int32_t tokens);

  // Makes a waiting sequence run, beginning with `tokens` of it. Refused unless all its known
  // tokens and one more would find blocks beside what running sequences still need, copies of
  // shared blocks included, so that prompts half computed do not evict each other.
  Fit admit(const SequenceView& sequence, int32_t tokens) {
    return admit_beside(sequence, tokens, promised_blocks_);
  }
  // The same, but what running best-effort prompts still need does not count: for sequences that
  // take their blocks from best effort anyway. Copies of shared blocks count, so that no sequence
  // is dropped beside the admission.
  Fit admit_before_best_effort(const SequenceView& sequence, int32_t tokens) {
    return admit_beside(sequence, tokens, promised_blocks_ - promised_best_effort_);
  }
  // Makes a waiting sequence run that goes straight to the host, with all of its tokens. It takes
  // no blocks of the accelerator, and no place of a running sequence beyond this step. Refused
  // unless its next token would find a block on the host too.
  Fit admit_to_host(const SequenceView& sequence);
  // Whether a sequence is of a kind that may go straight to the host, in some step.
  [[nodiscard]] bool may_go_straight_to_host(const SequenceView& sequence) const;
  // How many blocks are missing to admit a best-effort sequence, or a latency-sensitive one before
  // best effort; 0 or less: none.
  [[nodiscard]] int64_t missing_to_admit(const SequenceView& sequence, int32_t tokens) const;

  // Drops the KV of a running sequence that has no slice in this plan, or of a parked one.
  void preempt(const SequenceView& sequence);

  // Begins to move a running sequence without a slice in this plan to the host. Refused unless its
  // next token would find a block there too. Its blocks here are not free yet.
  Fit offload(const SequenceView& sequence);
  // Begins to move an offloaded one back, with the same condition.
  Fit onload(const SequenceView& sequence);

  [[nodiscard]] int32_t tokens_left() const { return budget_.tokens; }
  [[nodiscard]] int32_t logit_rows_left() const { return budget_.logit_rows; }
  [[nodiscard]] int32_t sequences_left() const { return budget_.sequences; }
  [[nodiscard]] int64_t blocks_left() const { return budget_.free_blocks; }
  [[nodiscard]] int64_t host_blocks_left() const { return budget_.host_free_blocks; }
  [[nodiscard]] int32_t staging_blocks_left() const { return budget_.staging_blocks; }
  [[nodiscard]] int32_t slices_left() const {
    return view_.budget.logit_rows - static_cast<int32_t>(plan_.slices.size());
  }
  // What running sequences still need before a latency-sensitive one is admitted before best
  // effort.
  [[nodiscard]] int64_t blocks_before_best_effort() const {
    return promised_blocks_ - promised_best_effort_;
  }
  [[nodiscard]] bool preempts() const { return !plan_.preempt.empty(); }
  // Of those that were offloaded: back to the accelerator in this plan.
  [[nodiscard]] const std::vector<SequenceId>& returning() const { return plan_.onload; }
  // Planners let a sequence wait that lacks blocks and would free none if it were dropped. If every
  // running sequence waits like that, the newest is dropped here.
  [[nodiscard]] StepPlan finish();

 private:
  [[nodiscard]] int64_t blocks_for(int64_t tokens) const {
    return (tokens + budget_.block_tokens - 1) / budget_.block_tokens;
  }
  // Blocks that a sequence lacks to hold `tokens`. Mostly none, which needs no division to tell.
  [[nodiscard]] int64_t missing_blocks(const SequenceView& sequence, int64_t tokens) const {
    const int64_t held_tokens = int64_t{sequence.held_blocks} * budget_.block_tokens;
    return tokens <= held_tokens ? 0 : blocks_for(tokens) - sequence.held_blocks;
  }
  // What a tier must give a sequence that comes to it and goes on.
  [[nodiscard]] int64_t blocks_to_hold(const SequenceView& sequence) const {
    return std::max<int64_t>(sequence.transfer_blocks, blocks_for(sequence.known_tokens));
  }
  [[nodiscard]] int64_t promised(const SequenceView& sequence) const {
    return missing_blocks(sequence, sequence.known_tokens) + sequence.copy_blocks;
  }
  // The blocks that an admission takes now, and those that it will need in all.
  struct Admission {
    int64_t now = 0;         // for its first tokens, cached blocks that count as free included
    int64_t later = 0;       // beyond these
    int64_t taken_over = 0;  // blocks of its prefix that are in use in the view
  };
  [[nodiscard]] Admission blocks_to_begin(const SequenceView& sequence, int32_t tokens) const;
  [[nodiscard]] int64_t wanted(const Admission& admission, int64_t promised_blocks) const;
  Fit admit_beside(const SequenceView& sequence, int32_t tokens, int64_t promised_blocks);
  // So many blocks more, `prompt` of them for the rest of a prompt and not for copies; fewer where
  // negative.
  void promise(const SequenceView& sequence, int64_t blocks, int64_t prompt) {
    promised_blocks_ += blocks;
    promised_best_effort_ +=
        sequence.service_class == ServiceClass::kBestEffort ? prompt : int64_t{0};
  }
  void drop_a_sharer();

  void add_slice(SequenceId sequence, int32_t tokens) {
    StepPlan::Slice& slice = plan_.slices.emplace_back();
    slice.sequence = sequence;
    slice.tokens = tokens;
  }

  const SystemView& view_;
  StepBudget budget_;
  int64_t promised_blocks_ = 0;       // that running sequences need for their known tokens
  int64_t promised_best_effort_ = 0;  // of these, for prompts of best effort
  // Of dropped sequences, counted as free; an admission may take some of them over.
  int64_t freed_blocks_ = 0;
  // In use in the view and taken over by admitted sequences; a dropped sequence may have them.
  int64_t taken_over_ = 0;
  bool short_of_blocks_ = false;  // a running sequence found too few
  StepPlan plan_;
};

}  // namespace tandem
