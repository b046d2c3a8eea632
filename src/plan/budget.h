// The resources that a step plan spends, each with its one owner. PlanBuilder (scheduler/) refuses
// what does not fit.
//
//   blocks           kv::KvManager       free now, cached blocks without a user included
//   activation rows  the executor        tokens of one step
//   logit rows       the executor        sampled rows of one step
//   sequences        the engine          admitted and not ended
#pragma once

#include <cstdint>

namespace tandem {

struct StepBudget {
  int32_t tokens = 0;
  int32_t logit_rows = 0;
  int32_t sequences = 0;  // that may still be admitted
  int64_t free_blocks = 0;
  int32_t block_tokens = 32;
};

}  // namespace tandem
