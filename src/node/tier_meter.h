// Times the parts of a second tier in the real executor: host attention and copies alone, and steps
// of residents with visitors beside them, driven by hand. The counterpart of EngineMeter.
//
// One thread; nothing else may use the executor meanwhile. What it leaves behind in the KV pools
// has no owner.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bell.h"
#include "base/clock.h"
#include "base/result.h"
#include "exec/forward_executor.h"
#include "latency/host_profiler.h"
#include "request/sampling_params.h"

namespace tandem {

class TierMeter final : public latency::HostMeter {
 public:
  struct Options {
    int32_t layers = 0;
    int32_t max_model_len = 0;
    int32_t group_stages = 0;
  };
  // `executor` has two tiers; `bell.ring` must be called by its completion listener. All must
  // outlive it.
  TierMeter(const Options& options, ForwardExecutor& executor, Bell& bell, const Clock& clock);

  [[nodiscard]] latency::HostLimits limits() const override;
  Result<latency::HostAttended> attention(int32_t rows, int32_t context) override;
  Result<Nanos> copy(latency::LinkWay way, int64_t bytes) override;
  Result<latency::TierSteps> steps(int32_t residents, int32_t visitors) override {
    return time_steps(StepMode::kGroups, residents, visitors);
  }
  Result<latency::TierSteps> lane_steps(int32_t residents) override {
    return time_steps(StepMode::kLanes, residents, 0);
  }

 private:
  // One step's time, and the engine thread's part of it.
  struct Timed {
    double step_nanos = 0;
    double engine_nanos = 0;
  };
  Result<latency::TierSteps> time_steps(StepMode mode, int32_t residents, int32_t visitors);
  [[nodiscard]] Timed run(const StepInput& input);
  [[nodiscard]] SampleSpec sample_of(SequenceId sequence) const;
  void add_residents(int32_t residents, StepInput& input);
  void wait();
  void leave_all(int32_t visitors);

  const Options options_;
  ForwardExecutor& executor_;
  Bell& bell_;
  const Clock& clock_;
  const int32_t position_;  // of every token that a step computes
  SamplingParams sampling_;
  int64_t next_step_ = 1;
  std::vector<BlockId> blocks_;      // 0, 1, ..: a table of one block each
  std::vector<SampleSpec> specs_;    // of the residents
  std::vector<SequenceId> between_;  // visitors that have no token under way
};

}  // namespace tandem
