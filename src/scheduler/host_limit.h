// Whether the host's attention is what limits the decoding of offloaded sequences (the regime
// "host bandwidth" of observe/regime.h), by what is believed about time and not by what was
// counted, so that a plan stays a function of its view.
//
// In a step each offloaded sequence that decodes makes at most one hop. If the host takes longer to
// attend for all these hops than the step takes, sequences wait for the host: one more sequence
// there adds no token per second. Otherwise their number limits them, or the accelerator does.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "latency/host_times.h"
#include "latency/step_shape.h"
#include "latency/step_time_model.h"
#include "plan/views.h"
#include "scheduler/patience.h"

namespace tandem {

// Its next token may run beside the step.
constexpr bool decodes_on_host(const SequenceView& sequence) {
  return sequence.tier == Tier::kHost && sequence.state != SequenceState::kOnloading;
}

// One hop of each sequence that decodes on the host, beside one step.
struct HopsOfAStep {
  Nanos host{0};  // that the host attends for them; 0: no sequence decodes there
  Nanos step{0};  // that the step takes with these visitors
};
// `residents`: the step without visitors. Pure.
HopsOfAStep hops_of_a_step(const SystemView& view, const latency::HostTimes& host,
                           const latency::StepTimeModel& model,
                           const latency::StepShape& residents);

// The same for long: begins after `steps` steps in a row in which the host takes longer than the
// step, and ends after as many in which it takes at most kFreeShare percent of it, or as soon as no
// sequence decodes on the host. One owner, which asks once for each planning.
class HostLimit {
 public:
  static constexpr int64_t kFreeShare = 80;

  // 0 steps: never.
  explicit HostLimit(int32_t steps) : steps_(steps) {}

  // With `hops` of step `step`.
  bool limits(const HopsOfAStep& hops, int64_t step);

 private:
  int32_t steps_;
  bool limits_ = false;
  InARow changes_;  // steps that speak for the other state
};

}  // namespace tandem
