// For tests of APEX's policies: both sets of rules, and a policy over the beliefs of lanes_scene.h.
#pragma once

#include <cstdint>

#include "scheduler/policies/apex.h"
#include "support/neo_scene.h"

namespace tandem::testing {

// An offloaded token whose next stage is `stage`, in the lane without residents.
inline SequenceView under_way(int64_t id, int32_t known, int32_t stage, uint8_t lane = 1) {
  return in_flight(id, known, stage, lane);
}

inline const NeoRules kPublished{.windows = LaneWindows::kPaper, .join = HostJoin::kByApex};
inline const NeoRules kPlus{.windows = LaneWindows::kReal,
                            .caps_steps = true,
                            .repaired = true,
                            .patience_steps = 8,
                            .join = HostJoin::kByApexPlus,
                            .mixed_window = MixedWindow::kReal};

class ApexScene : public NeoScene {
 protected:
  // Beside the eight residents of with_residents the accelerator takes 100 ns for a token of
  // context, and the bound of APEX's inequality (6) is 2 * 80 / 800 + 3 + 800 / 80 = 13.2.
  NeoPolicy& made(double host_per_context_nanos, const NeoRules& rules) {
    return NeoScene::made(host_per_context_nanos, rules,
                          rules.join == HostJoin::kByApex ? kApex : kApexPlus);
  }
};

}  // namespace tandem::testing
