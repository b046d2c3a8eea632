#include "scheduler/policies/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scheduler/policies/accel_only.h"
#include "scheduler/policies/sarathi.h"

namespace tandem {

namespace {

Status check(const PiggybackOptions& options) {
  if (options.token_budget < 1) {
    return invalid_argument(fmt::format("the token budget of piggyback must be at least 1, not {}",
                                        options.token_budget),
                            "piggyback-token-budget");
  }
  if (options.offload_below < 0 || options.onload_above > 100 ||
      options.offload_below > options.onload_above) {
    return invalid_argument(
        fmt::format("--offload-below {} and --onload-above {} must be percentages, the first not "
                    "above the second",
                    options.offload_below, options.onload_above),
        "offload-below");
  }
  return {};
}

}  // namespace

std::vector<std::string_view> policy_names() { return {"accel_only", "sarathi", "piggyback"}; }

Result<std::unique_ptr<StepPolicy>> make_policy(std::string_view name,
                                                const PolicyOptions& options) {
  if (name == "accel_only") {
    return std::unique_ptr<StepPolicy>(std::make_unique<AccelOnlyPolicy>());
  }
  if (name == "sarathi") {
    if (options.sarathi_token_budget < 1) {
      return invalid_argument(fmt::format("the token budget of sarathi must be at least 1, not {}",
                                          options.sarathi_token_budget),
                              "sarathi-token-budget");
    }
    return std::unique_ptr<StepPolicy>(
        std::make_unique<SarathiPolicy>(options.sarathi_token_budget));
  }
  if (name == "piggyback") {
    RETURN_IF_ERROR(check(options.piggyback));
    return std::unique_ptr<StepPolicy>(std::make_unique<PiggybackPolicy>(options.piggyback));
  }
  return invalid_argument(
      fmt::format("unknown policy '{}' (known: {})", name, fmt::join(policy_names(), ", ")),
      "policy");
}

}  // namespace tandem
