#include "scheduler/policies/registry.h"

#include <fmt/format.h>

#include "scheduler/policies/accel_only.h"
#include "scheduler/policies/sarathi.h"

namespace tandem {

std::vector<std::string_view> policy_names() { return {"accel_only", "sarathi"}; }

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
  return invalid_argument(fmt::format("unknown policy '{}' (known: accel_only, sarathi)", name),
                          "policy");
}

}  // namespace tandem
