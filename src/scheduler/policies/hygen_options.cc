// The options of hygen and its baselines.
#include <limits>

#include "scheduler/policies/hygen.h"

namespace tandem {

constinit const PolicyOption kHyGenStepBudget{
    .name = "hygen-step-budget",
    .unit = "us",
    .default_value = 50'000,
    .min = 1,
    .max = std::numeric_limits<int32_t>::max(),
    .help = "time of a step, in microseconds, into which best effort must fit"};
constinit const PolicyOption kStepBudgetFlexOnly{
    .name = "step-budget-flex-only",
    .unit = "",
    .default_value = 0,
    .min = 0,
    .max = 1,
    .help =
        "1: the step budget bounds best effort only; latency-sensitive prompts are cut by the "
        "token budget alone, and best effort gets the time that they leave"};
constinit const PolicyOption kFlexBlocks{
    .name = "flex-blocks",
    .unit = "percent",
    .default_value = 100,
    .min = 1,
    .max = 100,
    .help =
        "a best-effort prompt begins while best effort then holds at most so many percent of the "
        "accelerator's KV blocks, or if no other best-effort request runs; its decodes may outgrow "
        "them"};
constinit const PolicyOption kPsmUtility{
    .name = "psm-utility",
    .unit = "percent",
    .default_value = 0,
    .min = 0,
    .max = 100,
    .help =
        "share of best-effort prompts that begin in the order that shares most prefixes, the "
        "others are the oldest; 0: all first come, first served"};

constinit const PolicyOption kFlexRate{.name = "flex-rate",
                                       .unit = "requests",
                                       .default_value = 1000,
                                       .min = 1,
                                       .max = 10'000'000,
                                       .help = "best-effort requests that begin in 1,000 seconds"};
constinit const PolicyOption kDeadlineFirst{
    .name = "deadline-first",
    .unit = "",
    .default_value = 0,
    .min = 0,
    .max = 1,
    .help =
        "1: best-effort prompts begin in the order in which their targets for the first token "
        "end, those without a target last"};
constinit const PolicyOption kFairTenants{
    .name = "fair-tenants",
    .unit = "",
    .default_value = 0,
    .min = 0,
    .max = 1,
    .help =
        "1: latency-sensitive prompts begin in turn by API key: first that of the key which was "
        "served the fewest tokens, output tokens counted twice"};
constinit const PolicyOption kHoldMeanTbt{
    .name = "hold-mean-tbt",
    .unit = "us",
    .default_value = 0,
    .min = 0,
    .max = std::numeric_limits<int32_t>::max(),
    .help =
        "mean time from a latency-sensitive token to the next, in microseconds: the step budget "
        "follows it (0: it does not)"};
constinit const PolicyOption kHoldP99Tbt{.name = "hold-p99-tbt",
                                         .unit = "us",
                                         .default_value = 0,
                                         .min = 0,
                                         .max = std::numeric_limits<int32_t>::max(),
                                         .help = "the same for that of 99 percent of the tokens"};
constinit const PolicyOption kHoldMeanTtft{.name = "hold-mean-ttft",
                                           .unit = "us",
                                           .default_value = 0,
                                           .min = 0,
                                           .max = std::numeric_limits<int32_t>::max(),
                                           .help = "the same for the mean time to the first token"};
constinit const PolicyOption kHoldP99Ttft{
    .name = "hold-p99-ttft",
    .unit = "us",
    .default_value = 0,
    .min = 0,
    .max = std::numeric_limits<int32_t>::max(),
    .help = "the same for the time to the first token of 99 percent of the requests"};

}  // namespace tandem
