#include "scheduler/fill_binder.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {

FillBinder::FillBinder(int32_t stage_cap) : stage_cap_(stage_cap) {
  CHECK(stage_cap >= 0, "a cap of {} visitors at a stage", stage_cap);
}

void FillBinder::bind(const BindView& view, BindDecision& decision) {
  CHECK(view.ready.size() == view.credits.size(), "{} stages with visitors, {} with credits",
        view.ready.size(), view.credits.size());
  decision.visitors.assign(view.ready.size(), 0);
  int32_t routed = 0;  // hops that this group begins
  for (size_t i = 0; i < view.ready.size(); ++i) {
    int32_t room = std::min(view.row_room, stage_cap_);
    if (view.first_stage + static_cast<int32_t>(i) == view.last_stage) {
      room = std::min(room, view.logit_room);
    } else {
      room = std::min(room, view.credits[i] - routed);
    }
    const int32_t joining = std::clamp(view.ready[i], 0, std::max(room, 0));
    decision.visitors[i] = joining;
    routed += joining;
  }
}

}  // namespace tandem
