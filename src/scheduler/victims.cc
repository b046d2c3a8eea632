#include "scheduler/victims.h"

#include <algorithm>

namespace tandem {

RunningPlanner::RunningPlanner(const SystemView& view, PlanBuilder& builder)
    : view_(view), builder_(builder), fates_(view.running.size(), Fate::kUndecided) {}

int32_t RunningPlanner::newest_undecided() const {
  auto index = static_cast<int32_t>(fates_.size()) - 1;
  while (index >= 0 && fates_[static_cast<size_t>(index)] != Fate::kUndecided) {
    --index;
  }
  return index;
}

void RunningPlanner::add(int32_t index, int32_t limit) {
  const SequenceView& sequence = view_.running[static_cast<size_t>(index)];
  Fate& fate = fates_[static_cast<size_t>(index)];
  if (fate == Fate::kDropped) {
    return;
  }
  const int32_t tokens = std::min({sequence.pending_tokens(), limit, builder_.tokens_left()});
  if (tokens < 1) {
    return;
  }
  Fit fit = builder_.add(sequence, tokens);
  while (fit == Fit::kNoBlocks) {
    const int32_t victim = newest_undecided();
    if (victim < 0) {
      return;  // everyone newer already runs in this step; this one waits
    }
    builder_.preempt(view_.running[static_cast<size_t>(victim)]);
    fates_[static_cast<size_t>(victim)] = Fate::kDropped;
    if (victim == index) {
      return;
    }
    fit = builder_.add(sequence, tokens);
  }
  if (fit == Fit::kFits) {
    fate = Fate::kPlanned;
  }
}

}  // namespace tandem
