// The second half of `tandem bench scheduler`: what planning a step takes on two tiers, with views
// made by hand, so that all that a policy is shown is known: residents that decode, sequences on
// the host of which half have a token under way at some stage, and a few prompts that wait. One
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace tandem::bench {

struct TwoTierPlansOptions {
  int32_t running = 256;
  int32_t offloaded = 400;
  int32_t steps = 300;
};

struct TwoTierPlans {
  std::string policy;
  std::vector<double> micros;  // by plan
};

// For each policy that plans lanes by predicted times.
std::vector<TwoTierPlans> measure_two_tier_plans(const TwoTierPlansOptions& options);

}  // namespace tandem::bench
