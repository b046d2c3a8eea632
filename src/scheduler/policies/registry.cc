#include "scheduler/policies/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>

#include "scheduler/policies/accel_only.h"
#include "scheduler/policies/apex.h"
#include "scheduler/policies/hygen.h"
#include "scheduler/policies/llumnix.h"
#include "scheduler/policies/neo.h"
#include "scheduler/policies/omniserve.h"
#include "scheduler/policies/piggyback.h"
#include "scheduler/policies/sarathi.h"

namespace tandem {
namespace {

constexpr std::array<const PolicyDescriptor*, 17> kPolicies = {
    &kAccelOnly, &kSarathi,    &kPiggyback,  &kOverlap,   &kLanes,     &kOmniServe,
    &kLlumnix,   &kLlumnixCpu, &kHyGen,      &kSarathiPp, &kHyGenStar, &kNeo,
    &kNeoCapped, &kNeoPlus,    &kFastDecode, &kApex,      &kApexPlus};

Status check_range(const PolicyDescriptor& policy, const PolicyOption& option, int32_t value) {
  if (value >= option.min && value <= option.max) {
    return {};
  }
  const std::string name(option.name);
  return invalid_argument(
      fmt::format("--{} of the policy {} must be {} to {}{}{}, not {}", name, policy.name,
                  option.min, option.max, option.unit.empty() ? "" : " ", option.unit, value),
      name);
}

std::string policies_without_step_times() {
  std::vector<std::string_view> names = policy_names();
  std::erase_if(names, [](std::string_view name) { return policy_traits(name).needs_step_times; });
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::span<const PolicyDescriptor* const> policies() { return kPolicies; }

std::vector<std::string_view> policy_names() {
  std::vector<std::string_view> names;
  for (const PolicyDescriptor* policy : kPolicies) {
    names.push_back(policy->name);
  }
  return names;
}

const PolicyDescriptor* find_policy(std::string_view name) {
  const auto found = std::ranges::find(kPolicies, name, &PolicyDescriptor::name);
  return found == kPolicies.end() ? nullptr : *found;
}

PolicyTraits policy_traits(std::string_view name) {
  const PolicyDescriptor* policy = find_policy(name);
  return policy == nullptr ? PolicyTraits{} : policy->traits;
}

std::vector<const PolicyOption*> policy_options() {
  std::vector<const PolicyOption*> options;
  for (const PolicyDescriptor* policy : kPolicies) {
    for (const PolicyOption* option : policy->options) {
      if (std::ranges::find(options, option) == options.end()) {
        options.push_back(option);
      }
    }
  }
  return options;
}

bool reads_option(std::string_view policy, const PolicyOption& option) {
  const PolicyDescriptor* found = find_policy(policy);
  return found != nullptr && std::ranges::find(found->options, &option) != found->options.end();
}

std::string policies_that_read(const PolicyOption& option) {
  std::vector<std::string_view> names = policy_names();
  std::erase_if(names, [&](std::string_view name) { return !reads_option(name, option); });
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<PolicyParts> make_policy(std::string_view name, const PolicyOptions& options,
                                const Beliefs& beliefs) {
  const PolicyDescriptor* policy = find_policy(name);
  if (policy == nullptr) {
    return invalid_argument(
        fmt::format("unknown policy '{}' (known: {})", name, fmt::join(policy_names(), ", ")),
        "policy");
  }
  for (const PolicyOption* option : policy->options) {
    RETURN_IF_ERROR(check_range(*policy, *option, options[*option]));
  }
  if (policy->traits.needs_step_times && beliefs.step_times == nullptr) {
    return invalid_argument(
        fmt::format("{} plans by a model of how long steps take, and there is no profile of this "
                    "model on this machine; make one, or choose a policy that needs none ({})",
                    name, policies_without_step_times()),
        "policy");
  }
  return policy->make(options, beliefs);
}

}  // namespace tandem
