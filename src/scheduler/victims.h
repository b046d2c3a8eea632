// Whom to drop when blocks run out: the newest running sequence that has no part in the plan yet.
// One list per planning.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/views.h"
#include "scheduler/plan_builder.h"

namespace tandem {

// Adds running sequences to a plan, dropping newer ones where blocks are missing.
class RunningPlanner {
 public:
  RunningPlanner(const SystemView& view, PlanBuilder& builder);

  // The next tokens, at most `limit`, of running sequence `index` (of view.running). Drops newer
  // sequences, newest first, until the blocks suffice; the sequence itself when it is the newest
  // left. An already dropped sequence is passed over.
  void add(int32_t index, int32_t limit);

 private:
  enum class Fate : uint8_t { kUndecided, kPlanned, kDropped };
  [[nodiscard]] int32_t newest_undecided() const;

  const SystemView& view_;
  PlanBuilder& builder_;
  std::vector<Fate> fates_;  // by index in view.running
};

}  // namespace tandem
