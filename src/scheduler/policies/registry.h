// Policies by name, for --policy.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "latency/corrected_model.h"
#include "latency/host_times.h"
#include "plan/decisions.h"
#include "request/service.h"
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
  // Its token budget and thresholds are those of `omniserve` too; the budget also that of
  // `llumnix`.
  PiggybackOptions piggyback;
  int32_t llumnix_headroom_percent = 20;  // of the blocks, under `llumnix`
  int32_t patience_steps = 64;            // under `omniserve`: best effort is passed over no longer
};

std::vector<std::string_view> policy_names();
// True: the policy cannot do without beliefs.step_times, so they are measured where nobody has.
bool policy_needs_times(std::string_view name);
// What it reads of a request's class, level and targets.
ServiceFields policy_reads(std::string_view name);
// True: there is an admission that goes with it.
bool policy_admits(std::string_view name);
Result<std::unique_ptr<StepPolicy>> make_policy(std::string_view name,
                                                const PolicyOptions& options);

// Which visitors join under this policy, which must outlive the binder.
std::unique_ptr<Binder> make_binder(StepPolicy& policy);

// Whom this policy, which must outlive it, lets in; null: everybody.
std::unique_ptr<Admission> make_admission(StepPolicy& policy);

}  // namespace tandem
