#include "scheduler/join_binders.h"

#include "base/check.h"

namespace tandem {

void CohortBinder::bind(const BindView& view, BindDecision& decision) {
  CHECK(view.ready.size() == view.coming.size(), "{} stages with visitors, {} with more to come",
        view.ready.size(), view.coming.size());
  whole_.clear();
  for (size_t i = 0; i < view.ready.size(); ++i) {
    whole_.push_back(view.coming[i] == 0 ? view.ready[i] : 0);
  }
  BindView cohorts = view;
  cohorts.ready = whole_;
  fill_.bind(cohorts, decision);
}

void WaitBinder::bind(const BindView& view, BindDecision& decision) {
  if (view.mode == StepMode::kLanes) {
    CHECK(view.coming.size() == 1, "{} stages are bound at once in a step with lanes",
          view.coming.size());
    if (view.coming.front() > 0 && view.now >= trusts_again_) {
      if (view.held < patience_) {
        decision.wait = true;
        return;
      }
      trusts_again_ = view.now + kTrustsAgainAfter * patience_;
    }
  }
  fill_.bind(view, decision);
}

void LanesOrCohortBinder::bind(const BindView& view, BindDecision& decision) {
  if (view.mode == StepMode::kLanes) {
    lanes_.bind(view, decision);
  } else {
    cohorts_.bind(view, decision);
  }
}

}  // namespace tandem
