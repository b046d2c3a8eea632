// Which running sequences to drop when blocks run out. Of those that may go and have no part in the
// plan yet: the newest that holds blocks of its own. A sequence that shares all of its blocks frees
// none when it is dropped, so it keeps its tokens and waits; sequences that share blocks only with
// each other free them together.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/views.h"
#include "scheduler/plan_builder.h"

namespace tandem {

// The newest sequence at or behind place `first` of `view.running` that may go (`may_go(place)`)
// and frees blocks.
template <class MayGo>
std::optional<size_t> newest_with_blocks(const SystemView& view, size_t first,
                                         const MayGo& may_go) {
  for (size_t i = view.running.size(); i-- > first;) {
    if (view.running[i].own_blocks > 0 && may_go(i)) {
      return i;
    }
  }
  return std::nullopt;
}

// The choices of one request, that of the newest sequence at or behind place `first` that may go
// and shares all of its blocks; only the choices that do so. Newest first.
template <class MayGo>
std::vector<size_t> newest_sharers(const SystemView& view, size_t first, const MayGo& may_go) {
  std::vector<size_t> found;
  for (size_t i = view.running.size(); i-- > first;) {
    const SequenceView& sequence = view.running[i];
    const bool of_request =
        found.empty() || sequence.request == view.running[found.front()].request;
    if (sequence.own_blocks == 0 && sequence.held_blocks > 0 && of_request && may_go(i)) {
      found.push_back(i);
    }
  }
  return found;
}

// Adds running sequences to a plan, dropping newer ones where blocks are missing. One object per
// planning.
class RunningPlanner {
 public:
  RunningPlanner(const SystemView& view, PlanBuilder& builder);

  // The next tokens, at most `limit`, of running sequence `index` (of view.running). Drops newer
  // sequences, newest first, until the blocks suffice; the sequence itself when it is the newest
  // that frees any. An already dropped sequence is passed over.
  void add(size_t index, int32_t limit);

 private:
  enum class Fate : uint8_t { kUndecided, kPlanned, kDropped };
  void drop(size_t index);
  bool make_room(size_t index);

  const SystemView& view_;
  PlanBuilder& builder_;
  std::vector<Fate> fates_;  // by index in view.running
};

}  // namespace tandem
