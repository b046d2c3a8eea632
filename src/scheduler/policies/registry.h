// The table of all policies, for --policy. Threads: any; plain functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "scheduler/policy.h"

namespace tandem {

std::span<const PolicyDescriptor* const> policies();
std::vector<std::string_view> policy_names();
// Null: there is no such policy.
const PolicyDescriptor* find_policy(std::string_view name);
// Of the policy with this name; of an unknown one those of a policy that needs and reads nothing.
PolicyTraits policy_traits(std::string_view name);

// The options of all policies, each once.
std::vector<const PolicyOption*> policy_options();
// False for an unknown policy.
bool reads_option(std::string_view policy, const PolicyOption& option);
// The names of the policies that read this option, separated by commas.
std::string policies_that_read(const PolicyOption& option);

// Errors: an unknown name, an option out of its range, step times that the policy needs and that
// are not known.
Result<PolicyParts> make_policy(std::string_view name, const PolicyOptions& options,
                                const Beliefs& beliefs);

}  // namespace tandem
