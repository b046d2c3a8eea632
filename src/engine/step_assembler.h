// Turns a plan into the input of a step: preempts and admits sequences, begins moves between the
// tiers, gives each slice its tokens, blocks and samples. Internal to engine/; engine thread only.
//
// A part of the plan that finds no room is left out and counted (ShortfallLog), and nothing else
// suffers: its sequence waits for a later step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/current_step.h"
#include "engine/sequence_table.h"
#include "engine/shortfall_log.h"
#include "engine/tier_mover.h"
#include "kv/kv_manager.h"
#include "plan/decisions.h"

namespace tandem {

class StepAssembler {
 public:
  StepAssembler(SequenceTable& table, KvManager& kv, TierMover& mover, ShortfallLog& shortfalls,
                const ExecutorLimits& limits, CurrentStep& step)
      : table_(table),
        kv_(kv),
        mover_(mover),
        shortfalls_(shortfalls),
        limits_(limits),
        step_(step) {}

  // Begins a new step: forgets what the last one was assembled from.
  void begin();
  // Carries the plan out, up to the launch. True: some sequence was preempted or moved, so even
  // without a step the next plan may be another one.
  bool assemble(const StepPlan& plan);

 private:
  void preempt(const StepPlan& plan);
  void admit(const StepPlan& plan);
  void bind(const StepPlan& plan);
  [[nodiscard]] bool has_rows(const LiveSequence& sequence, int32_t tokens) const;
  bool make_writable(LiveSequence& sequence, int32_t tokens);
  bool place_on_host(LiveSequence& sequence, int32_t tokens);
  void bind_slice(LiveSequence& sequence, int32_t tokens, StepSlice& slice);
  std::span<const SampleSpec> bind_samples(const LiveSequence& sequence);

  SequenceTable& table_;
  KvManager& kv_;
  TierMover& mover_;
  ShortfallLog& shortfalls_;
  const ExecutorLimits limits_;
  CurrentStep& step_;
  // Of the plan, sorted: straight_to_host.
  std::vector<SequenceId> straight_;
  int32_t staging_blocks_ = 0;  // that they have taken
};

}  // namespace tandem
