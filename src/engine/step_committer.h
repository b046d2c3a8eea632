// Takes the result of a finished step: counts what was computed, appends sampled tokens, ends
// sequences, makes events, and corrects the model of step times. Internal to engine/; engine thread
// only.
#pragma once

#include <cstdint>
#include <span>

#include "engine/current_step.h"
#include "engine/event_outbox.h"
#include "engine/sequence_finisher.h"
#include "engine/sequence_table.h"
#include "engine/tier_mover.h"
#include "kv/kv_manager.h"
#include "latency/corrected_model.h"
#include "plan/step.h"

namespace tandem {

class StepCommitter {
 public:
  // `step_times` may be null: steps are not predicted. All else must outlive it.
  StepCommitter(int32_t max_model_len, latency::CorrectedModel* step_times, SequenceTable& table,
                KvManager& kv, TierMover& mover, EventOutbox& outbox, SequenceFinisher& finisher,
                CurrentStep& step)
      : max_model_len_(max_model_len),
        step_times_(step_times),
        table_(table),
        kv_(kv),
        mover_(mover),
        outbox_(outbox),
        finisher_(finisher),
        step_(step) {}

  // Compares the step's duration with the prediction, and learns from it.
  void learn(const StepResult& result);
  void commit(StepResult& result);

 private:
  void commit_slice(LiveSequence& sequence, int32_t tokens);
  void commit_visitor(SampledToken& sampled);
  void count_computed(LiveSequence& sequence, int32_t tokens);
  void commit_samples(const StepPart& part, std::span<const SampleSpec> specs,
                      std::span<SampledToken> samples);
  static void commit_scores(LiveSequence& sequence, const StepSlice& slice,
                            std::span<LogprobInfo> scores);
  void add_prompt_event(LiveSequence& sequence);
  void accept_token(LiveSequence& sequence, SampledToken& sampled);
  void record_first_token(LiveSequence& sequence);

  const int32_t max_model_len_;
  latency::CorrectedModel* const step_times_;
  SequenceTable& table_;
  KvManager& kv_;
  TierMover& mover_;
  EventOutbox& outbox_;
  SequenceFinisher& finisher_;
  CurrentStep& step_;
};

}  // namespace tandem
