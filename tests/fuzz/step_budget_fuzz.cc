// A file of --step-budget: whatever is let in is a budget that a policy option can hold.
#include "fuzz/fuzz.h"
#include "node/step_budget_file.h"

namespace tandem {

TANDEM_FUZZ_TARGET(input) {
  const Result<StepBudgetFile> file = parse_step_budget(input);
  if (!file.ok()) {
    CHECK(!file.error().message.empty());
    return;
  }
  CHECK(file->budget_us > 0, "a budget of {} us", file->budget_us);
  for (const int32_t held : file->held_us) {
    CHECK(held >= 0, "a goal of {} us", held);
  }
}

}  // namespace tandem
