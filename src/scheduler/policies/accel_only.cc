#include "scheduler/policies/accel_only.h"

#include <algorithm>
#include <limits>

#include "scheduler/plan_builder.h"
#include "scheduler/victims.h"

namespace tandem {

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
