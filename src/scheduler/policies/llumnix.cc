#include "scheduler/policies/llumnix.h"

#include <array>

#include "scheduler/fill_binder.h"
#include "scheduler/policies/piggyback.h"

namespace tandem {

constinit const PolicyOption kLlumnixHeadroom{
    .name = "llumnix-headroom",
    .unit = "percent",
    .default_value = 20,
    .min = 0,
    .max = 100,
    .help = "percent of the KV blocks that best effort may not use"};

namespace {

constexpr std::array<const PolicyOption*, 2> kLlumnixOptions = {&kPiggybackTokenBudget,
                                                                &kLlumnixHeadroom};

template <BudgetRules::Overflow kOverflow>
Result<PolicyParts> make(const PolicyOptions& options, const Beliefs& /*beliefs*/) {
  const BudgetRules rules{.token_budget = options[kPiggybackTokenBudget],
                          .headroom_percent = options[kLlumnixHeadroom],
                          .overflow = kOverflow};
  return PolicyParts{.step = std::make_unique<LlumnixPolicy>(rules),
                     .make_binder = fill_binder,
                     .admission = nullptr};
}

}  // namespace

constinit const PolicyDescriptor kLlumnix{
    .name = "llumnix",
    .summary = "two classes, a fixed share of the KV blocks kept for the first",
    .traits = {.reads = {.targets = false}},
    .options = kLlumnixOptions,
    .make = make<BudgetRules::Overflow::kWaits>};

constinit const PolicyDescriptor kLlumnixCpu{
    .name = "llumnix_cpu",
    .summary = "as llumnix; what overflows decodes on the host",
    .traits = {.tiers = PolicyTiers::kBoth, .reads = {.targets = false}},
    .options = kLlumnixOptions,
    .make = make<BudgetRules::Overflow::kGoesToHost>};

}  // namespace tandem
