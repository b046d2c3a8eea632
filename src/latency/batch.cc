#include "latency/batch.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::latency {

Status check_batch(const Batch& batch, const BatchLimits& limits) {
  const StepShape shape = batch.shape();
  const auto sequences = static_cast<int64_t>(batch.prompts.size() + batch.contexts.size());
  if (sequences == 0) {
    return invalid_argument("a batch without sequences");
  }
  for (const Batch::Prompt& prompt : batch.prompts) {
    if (prompt.rows < 1 || prompt.computed_tokens < 0 || prompt.logits < 0 || prompt.logits > 1 ||
        int64_t{prompt.computed_tokens} + prompt.rows >= limits.context) {
      return invalid_argument(fmt::format("a prompt of {} tokens after {}, of {} at most",
                                          prompt.rows, prompt.computed_tokens, limits.context));
    }
  }
  if (std::ranges::any_of(batch.contexts, [&](int32_t c) { return c < 2 || c > limits.context; })) {
    return invalid_argument(
        fmt::format("a decode whose context is not 2 .. {} tokens", limits.context));
  }
  if (shape.rows() > limits.rows || sequences > limits.sequences ||
      pool_tokens(batch, limits.block_tokens) > limits.tokens) {
    return invalid_argument(fmt::format(
        "a batch of {} rows, {} sequences and {} tokens; at most {}, {} and {} are possible",
        shape.rows(), sequences, pool_tokens(batch, limits.block_tokens), limits.rows,
        limits.sequences, limits.tokens));
  }
  return {};
}

}  // namespace tandem::latency
