#include "scheduler/victims.h"

#include <algorithm>

namespace tandem {

RunningPlanner::RunningPlanner(const SystemView& view, PlanBuilder& builder)
    : view_(view), builder_(builder), fates_(view.running.size(), Fate::kUndecided) {}

void RunningPlanner::drop(size_t index) {
  builder_.preempt(view_.running[index]);
  fates_[index] = Fate::kDropped;
}

// False: the sequence has no part in this plan.
bool RunningPlanner::make_room(size_t index) {
  const auto may_go = [&](size_t i) { return fates_[i] == Fate::kUndecided; };
  const std::optional<size_t> victim = newest_with_blocks(view_, index, may_go);
  if (victim.has_value() && *victim != index) {
    drop(*victim);
    return true;
  }
  if (!victim.has_value()) {
    return false;
  }
  // What they free the next plan knows.
  const std::vector<size_t> sharers = newest_sharers(view_, index + 1, may_go);
  for (const size_t sharer : sharers) {
    drop(sharer);
  }
  if (sharers.empty()) {
    drop(index);
  }
  return false;
}

void RunningPlanner::add(size_t index, int32_t limit) {
  const SequenceView& sequence = view_.running[index];
  if (fates_[index] == Fate::kDropped) {
    return;
  }
  const int32_t tokens = std::min({sequence.pending_tokens(), limit, builder_.tokens_left()});
  if (tokens < 1) {
    return;
  }
  Fit fit = builder_.add(sequence, tokens);
  while (fit == Fit::kNoBlocks && make_room(index)) {
    fit = builder_.add(sequence, tokens);
  }
  if (fit == Fit::kFits) {
    fates_[index] = Fate::kPlanned;
  }
}

}  // namespace tandem
