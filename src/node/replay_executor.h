// Two tiers again as they were recorded: stands between the engine and a real executor and hands
// over what copies and hops end with when the record says so, however fast they are now. What the
// real tiers report earlier is held back; what they have not reported yet is waited for. The tokens
// are the real ones: that they do not depend on the company is what a replay tries.
//
// A record may be forged: nothing is handed over that the real executor has not said, and what it
// cannot say any more is a problem, which ends the replay. Blocks while it waits; one thread.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "node/record_lines.h"
#include "plan/step.h"

namespace tandem {

class ReplayExecutor final : public StepExecutor {
 public:
  // `limits`: of the recorded server, not above the real executor's. `clock` bounds how long a
  // recorded event is waited for. Executor and clock must outlive this.
  ReplayExecutor(StepExecutor& real, const ExecutorLimits& limits, const Clock& clock)
      : real_(real), limits_(limits), clock_(clock) {}

  // Of the next call of Engine::advance.
  void expect_visitors(std::vector<SequenceId> visitors) { visitors_ = std::move(visitors); }
  void expect_events(TierEvents events) { expected_ = std::move(events); }
  // What was counted in the step that ends, as in StepResult.
  void expect_counts(const RecordedCounts& counts) { in_step_ = counts; }
  void expect_ready(int64_t ready) { ready_in_step_ = ready; }
  // That the next planning is shown: they depend on when hops ended then.
  void expect_stages(std::map<SequenceId, int32_t> stages) { stages_ = std::move(stages); }
  // What of the record could not be done again; empty: nothing.
  [[nodiscard]] const std::string& problem() const { return problem_; }

  [[nodiscard]] const ExecutorLimits& limits() const override { return limits_; }
  void launch(const StepInput& input) override;
  [[nodiscard]] bool poll(StepResult& result) override;
  void leave(SequenceId offloaded) override;
  [[nodiscard]] TierEvents take_tier_events() override;
  [[nodiscard]] const Error* failure() const override { return real_.failure(); }
  [[nodiscard]] int32_t next_stage(SequenceId offloaded) const override {
    const auto stage = stages_.find(offloaded);
    return stage == stages_.end() ? -1 : stage->second;
  }

 private:
  void wait_for_step(StepResult& result);
  void hold(StepResult& result);
  void pump();
  template <class Ready>
  bool wait_for(const Ready& ready, const std::string& what);
  void hand_over_failed(SequenceId sequence);
  void hand_over_blocks();

  StepExecutor& real_;
  const ExecutorLimits limits_;
  const Clock& clock_;
  std::string problem_;
  bool running_ = false;
  int64_t step_ = 0;
  std::vector<SequenceId> visitors_;
  TierEvents expected_;
  RecordedCounts in_step_;
  int64_t ready_in_step_ = -1;
  std::map<SequenceId, int32_t> stages_;
  std::set<SequenceId> under_way_;                     // tokens that the real executor has
  std::map<SequenceId, SampledToken> held_;            // tokens that it has sampled too early
  std::map<SequenceId, std::vector<BlockId>> tables_;  // of those that entered
  std::set<SequenceId> leaving_;
  std::set<int64_t> transfers_done_;
  std::set<SequenceId> left_;  // for whatever reason
  std::multiset<BlockId> lost_blocks_;
};

}  // namespace tandem
