#include "scheduler/policies/piggyback.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "scheduler/fill_binder.h"
#include "scheduler/join_binders.h"

namespace tandem {

constinit const PolicyOption kPiggybackTokenBudget{
    .name = "piggyback-token-budget",
    .unit = "tokens",
    .default_value = 512,
    .min = 1,
    .max = std::numeric_limits<int32_t>::max(),
    .help = "tokens of a step; under omniserve while no target limits it"};
constinit const PolicyOption kOffloadBelow{
    .name = "offload-below",
    .unit = "percent",
    .default_value = 5,
    .min = 0,
    .max = 100,
    .help =
        "best-effort decodes move to the host while fewer percent of the KV blocks are free; "
        "100: always"};
constinit const PolicyOption kOnloadAbove{
    .name = "onload-above",
    .unit = "percent",
    .default_value = 10,
    .min = 0,
    .max = 100,
    .help =
        "an offloaded decode moves back if that leaves at least this percentage of the KV "
        "blocks free, or that of --offload-below if it is more; 100: never"};

namespace {

constexpr std::array<const PolicyOption*, 3> kPiggybackOptions = {&kPiggybackTokenBudget,
                                                                  &kOffloadBelow, &kOnloadAbove};
constexpr PolicyTraits kTraits{
    .tiers = PolicyTiers::kBoth, .plain_join = true, .reads = {.targets = false}};
constexpr PolicyTraits kInCohorts{
    .tiers = PolicyTiers::kBoth, .cohorts = true, .plain_join = true, .reads = {.targets = false}};

template <class JoinBinder>
std::unique_ptr<Binder> make_join_binder() {
  return std::make_unique<JoinBinder>();
}

template <const PolicyDescriptor& kDescriptor, MakeCandidate kMake, class JoinBinder>
Result<PolicyParts> make(const PolicyOptions& options, const Beliefs& beliefs) {
  return PolicyParts{.step = std::make_unique<PiggybackPolicy>(piggyback_options(options),
                                                               kDescriptor, kMake, beliefs),
                     .make_binder = make_join_binder<JoinBinder>,
                     .admission = nullptr};
}

constexpr PolicyDescriptor describe(std::string_view name, std::string_view summary,
                                    decltype(PolicyDescriptor::make) make,
                                    const PolicyTraits& traits = kTraits) {
  return {.name = name,
          .summary = summary,
          .traits = traits,
          .options = kPiggybackOptions,
          .make = make};
}

}  // namespace

constinit const PolicyDescriptor kPiggyback =
    describe("piggyback", "as sarathi; best effort decodes on the host where memory is short",
             make<kPiggyback, make_visitors, FillBinder>);
constinit const PolicyDescriptor kOverlap =
    describe("overlap", "as piggyback; offloaded tokens at the same stage join a step together",
             make<kOverlap, make_overlap, CohortBinder>, kInCohorts);
constinit const PolicyDescriptor kLanes =
    describe("lanes", "as piggyback; steps have two lanes, which wait for their offloaded tokens",
             make<kLanes, make_lanes, WaitBinder>);

PiggybackOptions piggyback_options(const PolicyOptions& options) {
  const int32_t offload_below = options[kOffloadBelow];
  return {.token_budget = options[kPiggybackTokenBudget],
          .offload_below = offload_below,
          .onload_above = std::max(offload_below, options[kOnloadAbove])};
}

PiggybackPolicy::PiggybackPolicy(const PiggybackOptions& options,
                                 const PolicyDescriptor& descriptor, MakeCandidate make,
                                 const Beliefs& beliefs)
    : options_(options), descriptor_(descriptor), make_(make), beliefs_(beliefs) {
  CHECK(options.token_budget > 0 && options.offload_below >= 0 &&
            options.offload_below <= options.onload_above && options.onload_above <= 100,
        "a token budget of {}, offload below {} %, onload above {} %", options.token_budget,
        options.offload_below, options.onload_above);
}

}  // namespace tandem
