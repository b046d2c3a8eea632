#include "node/policy_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "node/time_profile.h"
#include "scheduler/policies/accel_only.h"
#include "scheduler/policies/omniserve.h"
#include "scheduler/policies/piggyback.h"
#include "scheduler/policies/registry.h"
#include "scheduler/policies/sarathi.h"

namespace tandem {
namespace {

constexpr Nanos kSmoothStep = std::chrono::milliseconds(100);
constexpr int32_t kDecodeShare = 3;
constexpr int32_t kMinBudget = 64;
constexpr int32_t kMaxBudget = 512;
constexpr int kRepeats = 3;

// The shortest of a few: what is measured once may have been interrupted.
Result<Nanos> shortest(latency::BatchMeter& meter, const latency::Batch& batch) {
  Nanos best = Nanos::max();
  for (int i = 0; i < kRepeats; ++i) {
    ASSIGN_OR_RETURN(const Nanos took, meter.measure(batch));
    best = std::min(best, took);
    if (took > kSmoothStep) {
      break;  // long enough to be sure
    }
  }
  return best;
}

// Prompts of so many rows in all that go on after the step, as chunks of long prompts do.
latency::Batch prompts_of(int32_t rows, const latency::BatchLimits& limits) {
  latency::Batch batch;
  const int32_t slice = std::min(rows, limits.context - 2);
  for (int32_t left = rows; left > 0; left -= slice) {
    batch.prompts.push_back({.computed_tokens = 0, .rows = std::min(left, slice), .logits = 0});
  }
  return batch;
}

// A policy's step budget of 0; command lines give it to all policies that have such a budget.
bool is_measured_later(const PolicyOption& option, int32_t value) {
  return value == 0 && std::ranges::any_of(policies(), [&](const PolicyDescriptor* policy) {
           return policy->traits.measured_budget == &option;
         });
}

}  // namespace

bool is_automatic(const NodeOptions& options) {
  return options.policy.empty() || options.policy == "auto";
}

void choose_plain_policy(NodeOptions& options) {
  if (is_automatic(options)) {
    options.policy = options.accelerator.has_value() ? kPiggyback.name : kAccelOnly.name;
  }
}

PolicyChoice choose_automatic_policy(const NodeOptions& options, const OpenedModel& model) {
  const bool two_tiers = options.accelerator.has_value();
  if (options.profile.model != latency::TimeModel::kTable) {
    if (options.targets_given) {
      return {std::string(kOmniServe.name), "a TTFT or TPOT target is given"};
    }
    if (!options.profile.file.empty()) {
      return {std::string(kOmniServe.name), "a profile is named"};
    }
    // Also one of an earlier build, which is measured again: an update changes no policy.
    if (const auto ready = fitting_profile(options, model); ready.ok() && ready->has_value()) {
      return {std::string(kOmniServe.name), "a profile of this model on this machine lies ready"};
    }
  }
  return {std::string(two_tiers ? kPiggyback.name : kSarathi.name),
          "no target is given and there is no profile of this model on this machine"};
}

std::vector<std::string> options_without_effect(const NodeOptions& options) {
  const PolicyDescriptor* policy = find_policy(options.policy);
  if (policy == nullptr) {
    return {};
  }
  std::vector<std::string> lines;
  for (const PolicyOption* option : policy_options()) {
    const int32_t value = options.policy_options[*option];
    if (value != option->default_value && !is_measured_later(*option, value) &&
        !reads_option(policy->name, *option)) {
      lines.push_back(
          fmt::format("--{} {} has no effect: the policy {} does not read it; it is for {}",
                      option->name, value, policy->name, policies_that_read(*option)));
    }
  }
  if (options.accelerator.has_value() && options.host_memory_bytes > 0 &&
      policy->traits.tiers == PolicyTiers::kAccelerator) {
    lines.push_back(fmt::format(
        "the policy {} offloads no sequence: the host's memory for KV stays unused", policy->name));
  }
  return lines;
}

void warn_of_options_without_effect(const NodeOptions& options) {
  for (const std::string& line : options_without_effect(options)) {
    log::warn("{}", line);
  }
}

bool wants_step_budget(const NodeOptions& options) {
  const PolicyOption* budget = policy_traits(options.policy).measured_budget;
  return budget != nullptr && options.policy_options[*budget] == 0;
}

bool joins_in_cohorts(const NodeOptions& options) { return policy_traits(options.policy).cohorts; }

bool stages_prompts(const NodeOptions& options) {
  return options.prompts_to_host == PromptsToHost::kStaged &&
         policy_traits(options.policy).stages_prompts;
}

Result<SmoothBudget> measure_step_budget(latency::BatchMeter& meter) {
  const latency::BatchLimits limits = meter.limits();
  SmoothBudget budget;
  latency::Batch decode;
  decode.contexts.push_back(std::min(16, limits.context));
  ASSIGN_OR_RETURN(budget.decode, shortest(meter, decode));
  budget.limit = std::max(kSmoothStep, kDecodeShare * budget.decode);
  for (int32_t rows = kMinBudget; rows <= kMaxBudget; rows *= 2) {
    const int32_t own = std::min(rows, limits.rows);
    const latency::Batch batch = prompts_of(own, limits);
    if (budget.tokens == own || !check_batch(batch, limits).ok()) {
      break;
    }
    ASSIGN_OR_RETURN(const Nanos took, shortest(meter, batch));
    if (took > budget.limit && budget.tokens > 0) {
      break;
    }
    budget.tokens = own;
    budget.step = took;
    if (took > budget.limit) {
      break;
    }
  }
  budget.tokens = std::max(budget.tokens, std::min(kMinBudget, limits.rows));
  return budget;
}

}  // namespace tandem
