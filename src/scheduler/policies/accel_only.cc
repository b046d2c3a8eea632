#include "scheduler/policies/accel_only.h"

#include <algorithm>
#include <limits>

#include "scheduler/fill_binder.h"
#include "scheduler/plan_builder.h"
#include "scheduler/victims.h"

namespace tandem {

constinit const PolicyDescriptor kAccelOnly{
    .name = "accel_only",
    .summary = "first come, first served; classes and targets are not looked at",
    .traits = {.reads = {.service_class = false, .level = false, .targets = false}},
    .options = {},
    .make = [](const PolicyOptions&, const Beliefs&) -> Result<PolicyParts> {
      return PolicyParts{.step = std::make_unique<AccelOnlyPolicy>(),
                         .make_binder = fill_binder,
                         .admission = nullptr};
    }};

StepPlan AccelOnlyPolicy::plan(const SystemView& view) {
  PlanBuilder builder(view);
  RunningPlanner running(view, builder);
  for (size_t i = 0; i < view.running.size(); ++i) {
    running.add(i, std::numeric_limits<int32_t>::max());
  }
  if (builder.preempts()) {
    return builder.finish();  // room is short: nobody new comes in
  }
  for (const SequenceView& sequence : view.waiting) {
    const int32_t tokens = std::min(sequence.pending_tokens(), builder.tokens_left());
    if (tokens < 1 || builder.admit(sequence, tokens) != Fit::kFits) {
      break;  // no skipping ahead: that would starve the long ones
    }
  }
  return builder.finish();
}

}  // namespace tandem
