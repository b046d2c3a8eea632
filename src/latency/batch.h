// A step's work spelled out, so that it can be run and timed: what the profiler asks for. Plain
// data.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "latency/step_shape.h"

namespace tandem::latency {

struct Batch {
  struct Prompt {
    int32_t computed_tokens = 0;  // before this step
    int32_t rows = 0;             // in this step, > 0
    int32_t logits = 0;           // 1: the prompt ends with this step; 0: it goes on
  };
  std::vector<Prompt> prompts;
  std::vector<int32_t> contexts;  // of decodes: tokens attended to, the new one included; >= 2

  [[nodiscard]] StepShape shape() const {
    StepShape shape;
    for (const Prompt& prompt : prompts) {
      shape.add_prefill(prompt.computed_tokens, prompt.rows, prompt.logits);
    }
    for (const int32_t context : contexts) {
      shape.add_decode(context);
    }
    return shape;
  }
  // KV that it needs, in tokens, without rounding to blocks.
  [[nodiscard]] int64_t tokens() const {
    int64_t tokens = 0;
    for (const Prompt& prompt : prompts) {
      tokens += prompt.computed_tokens + prompt.rows;
    }
    for (const int32_t context : contexts) {
      tokens += context;
    }
    return tokens;
  }
};

// What batches may ask for.
struct BatchLimits {
  int32_t rows = 0;       // of a step
  int32_t sequences = 0;  // of a step, sampled rows too
  int32_t context = 0;    // of a sequence
  int64_t tokens = 0;     // of all sequences; full blocks are counted
  int32_t block_tokens = 32;
};

// Whoever can run a batch as one step and time it: a real engine, or a made-up machine in tests.
class BatchMeter {
 public:
  virtual ~BatchMeter() = default;
  [[nodiscard]] virtual BatchLimits limits() const = 0;
  // Runs it once. Errors: the batch is not within the limits.
  virtual Result<Nanos> measure(const Batch& batch) = 0;
};

// KV tokens that the batch takes from a pool of such blocks.
inline int64_t pool_tokens(const Batch& batch, int32_t block_tokens) {
  const int64_t block = block_tokens;
  const auto blocks = [block](int64_t tokens) { return (tokens + block - 1) / block * block; };
  int64_t tokens = 0;
  for (const Batch::Prompt& prompt : batch.prompts) {
    tokens += blocks(int64_t{prompt.computed_tokens} + prompt.rows + 1);
  }
  for (const int32_t context : batch.contexts) {
    tokens += blocks(int64_t{context} + 1);
  }
  return tokens;
}

// Nothing, or why the batch cannot be run within `limits`.
Status check_batch(const Batch& batch, const BatchLimits& limits);

}  // namespace tandem::latency
