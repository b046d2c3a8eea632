#include "scheduler/margins.h"

#include <algorithm>

namespace tandem {

VisitorRows visitor_rows(const SystemView& view) {
  const auto parked = static_cast<int32_t>(view.offloaded.size());
  return {.tokens = std::min(parked, view.budget.tokens / kVisitorShareOfTokens),
          .logits = std::min(parked, std::max(1, view.budget.logit_rows / kVisitorShareOfLogits))};
}

int64_t ready_results(const SystemView& view) {
  return view.ready >= 0 ? view.ready
                         : std::ranges::count(view.offloaded, SequenceState::kParkedInFlight,
                                              &SequenceView::state);
}

const SequenceView* first_waiting(const SystemView& view, ServiceClass service_class) {
  const auto first = std::ranges::find(view.waiting, service_class, &SequenceView::service_class);
  return first == view.waiting.end() ? nullptr : &*first;
}

int64_t kept_beside_best_effort(const ClassedPlanner& planner, int32_t offload_below) {
  return planner.share_of_blocks(std::min(offload_below, kAdmissionMargin)) +
         planner.reserved_blocks();
}

void make_room_for_best_effort(ClassedPlanner& planner, const SystemView& view,
                               int32_t offload_below, NextPrompt next_prompt) {
  int64_t wanted = planner.share_of_blocks(offload_below) + planner.reserved_blocks();
  const SequenceView* next = first_waiting(view, ServiceClass::kBestEffort);
  if (next_prompt == NextPrompt::kMayBegin && next != nullptr && !planner.refused() &&
      next->choices <= view.budget.sequences) {
    wanted = std::max(
        wanted, planner.blocks_to_begin(*next) + kept_beside_best_effort(planner, offload_below));
  }
  planner.offload_best_effort(wanted - planner.builder().blocks_left(),
                              ClassedPlanner::Need::kWish);
}

}  // namespace tandem
