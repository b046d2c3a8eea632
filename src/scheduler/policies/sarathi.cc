#include "scheduler/policies/sarathi.h"

#include <algorithm>

#include "base/check.h"
#include "scheduler/plan_builder.h"
#include "scheduler/victims.h"

namespace tandem {

SarathiPolicy::SarathiPolicy(int32_t token_budget) : token_budget_(token_budget) {
  CHECK(token_budget > 0, "a token budget of {}", token_budget);
}

StepPlan SarathiPolicy::plan(const SystemView& view) {
  PlanBuilder builder(view);
  RunningPlanner running(view, builder);
  const int32_t step_tokens = builder.tokens_left();
  const auto prompt_room = [&] {
    return std::min(token_budget_ - (step_tokens - builder.tokens_left()), builder.tokens_left());
  };
  const auto count = static_cast<int32_t>(view.running.size());
  for (int32_t i = 0; i < count; ++i) {
    if (view.running[static_cast<size_t>(i)].decodes()) {
      running.add(i, 1);
    }
  }
  for (int32_t i = 0; i < count; ++i) {
    if (!view.running[static_cast<size_t>(i)].decodes() && prompt_room() > 0) {
      running.add(i, prompt_room());
    }
  }
  if (builder.preempts()) {
    return builder.finish();
  }
  for (const SequenceView& sequence : view.waiting) {
    const int32_t tokens = std::min(sequence.pending_tokens(), prompt_room());
    if (tokens < 1 || builder.admit(sequence, tokens) != Fit::kFits) {
      break;
    }
  }
  return builder.finish();
}

}  // namespace tandem
