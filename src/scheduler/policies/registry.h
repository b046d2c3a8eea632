// Policies by name, for --policy.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/decisions.h"
#include "scheduler/policies/piggyback.h"

namespace tandem {

struct PolicyOptions {
  int32_t sarathi_token_budget = 512;  // tokens of a step under `sarathi`
  PiggybackOptions piggyback;
};

std::vector<std::string_view> policy_names();
Result<std::unique_ptr<StepPolicy>> make_policy(std::string_view name,
                                                const PolicyOptions& options);

}  // namespace tandem
