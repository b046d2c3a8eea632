// Policies by name, for --policy.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "latency/corrected_model.h"
#include "latency/host_times.h"
#include "plan/decisions.h"
#include "scheduler/policies/piggyback.h"

namespace tandem {

// What policies may believe about time. Both outlive the policy; their const functions may be
// called at any time, and what they answer moves as the engine observes. Null: not known, as where
// nothing was profiled; a policy that cannot do without says so in make_policy.
struct Beliefs {
  const latency::CorrectedModel* step_times = nullptr;
  const latency::HostTimes* host_times = nullptr;  // two tiers only
};

struct PolicyOptions {
  Beliefs beliefs;
  int32_t sarathi_token_budget = 512;  // tokens of a step under `sarathi`
  PiggybackOptions piggyback;
};

std::vector<std::string_view> policy_names();
Result<std::unique_ptr<StepPolicy>> make_policy(std::string_view name,
                                                const PolicyOptions& options);

}  // namespace tandem
