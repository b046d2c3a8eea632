#include "scheduler/policies/sarathi.h"

#include <array>
#include <limits>

#include "scheduler/fill_binder.h"

namespace tandem {

constinit const PolicyOption kSarathiTokenBudget{
    .name = "sarathi-token-budget",
    .unit = "tokens",
    .default_value = 512,
    .min = 1,
    .max = std::numeric_limits<int32_t>::max(),
    .help = "tokens of a step; 0: as many, up to 512, as keep decodes smooth, measured at start"};

namespace {
constexpr std::array<const PolicyOption*, 1> kSarathiOptions = {&kSarathiTokenBudget};
}  // namespace

constinit const PolicyDescriptor kSarathi{
    .name = "sarathi",
    .summary = "two classes, long prompts do not stall answers",
    .traits = {.reads = {.targets = false}, .measured_budget = &kSarathiTokenBudget},
    .options = kSarathiOptions,
    .make = [](const PolicyOptions& options, const Beliefs&) -> Result<PolicyParts> {
      return PolicyParts{.step = std::make_unique<SarathiPolicy>(options[kSarathiTokenBudget]),
                         .make_binder = fill_binder,
                         .admission = nullptr};
    }};

}  // namespace tandem
