// What an executor is given for one step, and what it gives back. Plain data; spans borrow from the
// engine until launch returns.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "request/request.h"
#include "request/sampling_params.h"

namespace tandem {

// One row of logits to sample from, for one sequence.
struct SampleSpec {
  SequenceId sequence{};
  const SamplingParams* params = nullptr;
  uint64_t seed = 0;                // this sequence's own
  int64_t position = 0;             // of the token to be drawn: prompt + output tokens so far
  std::span<const TokenId> prompt;  // for the repetition penalty
  std::span<const TokenId> output;  // so far
  std::span<const TokenId> banned;  // stop ids while output < min_tokens
};

// Consecutive tokens of one sequence computed in this step.
struct StepSlice {
  SequenceId sequence{};
  std::span<const TokenId> tokens;
  int32_t first_position = 0;
  std::span<const BlockId> block_table;  // covers first_position + tokens.size()
  std::span<const SampleSpec>
      samples;  // drawn from the last token's logits; empty inside a prompt; several when n > 1
  // The tokens that follow the slice's rows 0, 1, ..: how likely each was is reported. Mostly
  // empty.
  std::span<const TokenId> scored;
  int32_t scored_top = 0;  // with how many of the most likely ones
};

struct BlockCopy {
  BlockId source{};
  BlockId target{};
};

struct StepInput {
  int64_t step = 0;
  std::vector<BlockCopy> copies;  // before anything else
  std::vector<StepSlice> slices;
};

struct SampledToken {
  SequenceId sequence{};
  TokenId token = 0;  // -1: the logits of this row were not finite
  std::optional<LogprobInfo> logprobs;
};

struct StepResult {
  int64_t step = 0;
  std::vector<SampledToken> samples;  // in the order of slices and their samples
  std::vector<LogprobInfo> scored;    // in the order of slices and their rows
};

struct ExecutorLimits {
  int32_t max_batched_tokens = 0;  // rows of a step
  int32_t max_logit_rows = 0;      // samples of a step
  int64_t total_blocks = 0;
  int32_t block_tokens = 0;
};

// Runs steps in order, one at a time. Engine thread only, except that the completion listener is
// called on a device thread.
class StepExecutor {
 public:
  virtual ~StepExecutor() = default;
  [[nodiscard]] virtual const ExecutorLimits& limits() const = 0;
  // Needs no step in flight and an input within the limits. Copies what it keeps; never blocks.
  virtual void launch(const StepInput& input) = 0;
  // The finished step's result, once; nullopt while it runs or when none is in flight.
  [[nodiscard]] virtual std::optional<StepResult> poll() = 0;
};

}  // namespace tandem
