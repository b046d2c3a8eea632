// The resources that a step plan spends, each with its one owner. PlanBuilder (scheduler/) refuses
// what does not fit.
//
//   blocks           kv::KvManager       free now, cached blocks without a user included
//   activation rows  the executor        tokens of one step
//   logit rows       the executor        sampled rows of one step
//   sequences        the engine          admitted, not ended and not offloaded
//   host blocks      kv::KvManager       as blocks; what offloaded sequences need next is taken off
//   staging blocks   the executor        of prompts that go straight to the host in one step
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem {

// Rows of logits that visitors need beside one for each of `sequences` places: where a host tier
// has none to spare, offloaded sequences would wait for as long as all places decode.
constexpr int32_t visitor_logit_rows(int32_t sequences) { return std::max(sequences / 8, 1); }

struct StepBudget {
  int32_t tokens = 0;
  int32_t logit_rows = 0;
  int32_t sequences = 0;  // that may still be admitted or come back
  int64_t free_blocks = 0;
  int64_t total_blocks = 0;
  int64_t host_free_blocks = 0;
  int64_t host_total_blocks = 0;  // 0: one tier, nothing can be offloaded
  int32_t staging_blocks = 0;     // 0: no prompt goes straight to the host
  int32_t block_tokens = 32;
};

}  // namespace tandem
