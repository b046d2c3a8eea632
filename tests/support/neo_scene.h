// For tests of NEO's policies: the rules of neo_plus, and a policy over the beliefs of
// lanes_scene.h.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "scheduler/policies/neo.h"
#include "support/lanes_scene.h"

namespace tandem::testing {

inline const NeoRules kNeoPlusRules{
    .windows = LaneWindows::kReal, .caps_steps = true, .repaired = true, .patience_steps = 8};

// Best-effort sequences on the host with `known` tokens each, numbered from `first`.
inline std::vector<SequenceView> parked_best_effort(int64_t count, int32_t known,
                                                    int64_t first = 11) {
  std::vector<SequenceView> views;
  for (int64_t i = 0; i < count; ++i) {
    views.push_back(best_effort(parked(first + i, known)));
  }
  return views;
}

class NeoScene : public ::testing::Test {
 protected:
  // A policy with this host; one for all plans of a test, since it has a memory.
  NeoPolicy& made(double host_per_context_nanos, const NeoRules& rules,
                  const PolicyDescriptor& descriptor,
                  const latency::CorrectedModel& times = model()) {
    host_ = host_of(host_per_context_nanos);
    policy_ = std::make_unique<NeoPolicy>(rules, descriptor,
                                          Beliefs{.step_times = &times, .host_times = &host_});
    return *policy_;
  }
  NeoPolicy& made_neo_plus(double host_per_context_nanos,
                           const latency::CorrectedModel& times = model()) {
    return made(host_per_context_nanos, kNeoPlusRules, kNeoPlus, times);
  }

 private:
  latency::HostTimes host_;
  std::unique_ptr<NeoPolicy> policy_;
};

}  // namespace tandem::testing
