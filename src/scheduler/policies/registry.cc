#include "scheduler/policies/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "scheduler/fill_binder.h"
#include "scheduler/join_binders.h"
#include "scheduler/policies/accel_only.h"
#include "scheduler/policies/llumnix.h"
#include "scheduler/policies/omniserve.h"
#include "scheduler/policies/sarathi.h"

namespace tandem {

namespace {

Result<std::unique_ptr<StepPolicy>> make_omniserve(const PolicyOptions& options) {
  if (options.beliefs.step_times == nullptr) {
    return invalid_argument(
        "omniserve plans by a model of how long steps take, and there is no profile of this model "
        "on this machine; make one, or choose a policy that needs none (piggyback, sarathi, "
        "accel_only)",
        "policy");
  }
  if (options.patience_steps < 1) {
    return invalid_argument(
        fmt::format("best effort can be passed over for at least 1 step, not {}",
                    options.patience_steps),
        "patience-steps");
  }
  return std::unique_ptr<StepPolicy>(std::make_unique<OmniServePolicy>(
      OmniServeOptions{.token_budget = options.piggyback.token_budget,
                       .offload_below = options.piggyback.offload_below,
                       .onload_above = options.piggyback.onload_above,
                       .patience_steps = options.patience_steps},
      *options.beliefs.step_times));
}

Status check(const PiggybackOptions& options) {
  if (options.token_budget < 1) {
    return invalid_argument(
        fmt::format("the token budget of a step must be at least 1, not {}", options.token_budget),
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

Result<std::unique_ptr<StepPolicy>> make_llumnix(std::string_view name,
                                                 const PolicyOptions& options) {
  RETURN_IF_ERROR(check(options.piggyback));
  if (options.llumnix_headroom_percent < 0 || options.llumnix_headroom_percent > 100) {
    return invalid_argument(fmt::format("--llumnix-headroom must be a percentage, not {}",
                                        options.llumnix_headroom_percent),
                            "llumnix-headroom");
  }
  return std::unique_ptr<StepPolicy>(std::make_unique<LlumnixPolicy>(
      BudgetRules{.token_budget = options.piggyback.token_budget,
                  .headroom_percent = options.llumnix_headroom_percent,
                  .overflow = name == "llumnix_cpu" ? BudgetRules::Overflow::kGoesToHost
                                                    : BudgetRules::Overflow::kWaits}));
}

// The policies with two tiers are one but for how offloaded tokens join.
std::optional<JoinRule> join_rule(std::string_view policy) {
  if (policy == "piggyback") {
    return JoinRule::kReady;
  }
  if (policy == "overlap") {
    return JoinRule::kCohort;
  }
  if (policy == "lanes") {
    return JoinRule::kWait;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string_view> policy_names() {
  return {"accel_only", "sarathi",   "piggyback", "overlap",
          "lanes",      "omniserve", "llumnix",   "llumnix_cpu"};
}

bool policy_needs_times(std::string_view name) { return name == "omniserve"; }

ServiceFields policy_reads(std::string_view name) {
  const bool knows_classes = name != "accel_only";
  return {.service_class = knows_classes, .level = knows_classes, .targets = name == "omniserve"};
}

bool policy_admits(std::string_view name) { return name == "omniserve"; }

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
  const std::optional<JoinRule> join = join_rule(name);
  if (join.has_value()) {
    RETURN_IF_ERROR(check(options.piggyback));
    return std::unique_ptr<StepPolicy>(std::make_unique<PiggybackPolicy>(options.piggyback, *join));
  }
  if (name == "llumnix" || name == "llumnix_cpu") {
    return make_llumnix(name, options);
  }
  if (name == "omniserve") {
    RETURN_IF_ERROR(check(options.piggyback));
    return make_omniserve(options);
  }
  return invalid_argument(
      fmt::format("unknown policy '{}' (known: {})", name, fmt::join(policy_names(), ", ")),
      "policy");
}

std::unique_ptr<Binder> make_binder(StepPolicy& policy) {
  if (auto* omniserve = dynamic_cast<OmniServePolicy*>(&policy)) {
    return omniserve->make_binder();
  }
  const std::optional<JoinRule> join = join_rule(policy.name());
  if (join == JoinRule::kCohort) {
    return std::make_unique<CohortBinder>();
  }
  if (join == JoinRule::kWait) {
    return std::make_unique<WaitBinder>();
  }
  return std::make_unique<FillBinder>();
}

std::unique_ptr<Admission> make_admission(StepPolicy& policy) {
  auto* omniserve = dynamic_cast<OmniServePolicy*>(&policy);
  return omniserve == nullptr ? nullptr : omniserve->make_admission();
}

}  // namespace tandem
