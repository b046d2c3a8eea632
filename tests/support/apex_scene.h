// For tests of APEX's policies: both sets of rules, and a policy over the beliefs of lanes_scene.h.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "scheduler/policies/apex.h"
#include "scheduler/policies/neo.h"
#include "support/lanes_scene.h"

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

class ApexScene : public ::testing::Test {
 protected:
  // A policy with this host; one for all plans of a test, since it has a memory. Beside the eight
  // residents of with_residents the accelerator takes 100 ns for a token of context, and the bound
  // of APEX's inequality (6) is 2 * 80 / 800 + 3 + 800 / 80 = 13.2.
  NeoPolicy& made(double host_per_context_nanos, const NeoRules& rules) {
    host_ = host_of(host_per_context_nanos);
    const PolicyDescriptor& descriptor = rules.join == HostJoin::kByApex ? kApex : kApexPlus;
    policy_ = std::make_unique<NeoPolicy>(rules, descriptor,
                                          Beliefs{.step_times = &model(), .host_times = &host_});
    return *policy_;
  }

 private:
  latency::HostTimes host_;
  std::unique_ptr<NeoPolicy> policy_;
};

}  // namespace tandem::testing
