// Choosing the next token of a row from its logits. Plain data; the kernel is in kernels.h.
//
// Order: logit bias and bans -> penalties -> (log-probabilities reported are of these logits before
// temperature) -> temperature -> top-k -> top-p -> min-p -> draw. temperature 0 = greedy, the
// lowest id on ties. The draw uses one uniform number from (seed, position), so the same seed gives
// the same text at any traffic. What each filter keeps: sample_rows.h. Ids outside the vocabulary
// are ignored. Every kernel family gives the same bits for the same logits.
#pragma once

#include <cstdint>

namespace tandem::kernels {

inline constexpr int32_t kMaxTopLogprobs = 20;

struct TokenBias {
  int32_t token = 0;
  float bias = 0.0F;  // added to the logit; -infinity bans
};

struct SampleRow {
  float temperature = 1.0F;
  float top_p = 1.0F;
  float min_p = 0.0F;
  int32_t top_k = 0;  // 0: off
  float repetition_penalty =
      1.0F;  // over prompt and output: divides positive, multiplies negative logits
  float presence_penalty = 0.0F;   // over output
  float frequency_penalty = 0.0F;  // over output
  uint64_t seed = 0;
  int64_t position = 0;  // of the token to be drawn, in the sequence
  int32_t logprobs =
      -1;  // -1: none; 0: of the chosen token; k: also of the k most likely (<= kMaxTopLogprobs)
  int32_t given = -1;  // at least 0: this token is reported on, none is drawn
  // The tokens so far, prompt then output, in blocks that rows may share: position p is
  // history[history_blocks[p / history_block_tokens] * history_block_tokens + p %
  // history_block_tokens]. Where only the output counts, the prompt's need not be there.
  const int32_t* history = nullptr;
  const int32_t* history_blocks = nullptr;
  int32_t history_block_tokens = 1;
  int64_t prompt_tokens = 0;  // 0, as the output's, where there is no penalty
  int64_t output_tokens = 0;
  const TokenBias* biases = nullptr;
  int64_t bias_count = 0;
  const int32_t* banned = nullptr;  // e.g. end tokens before min_tokens
  int64_t banned_count = 0;
};

struct SampleResult {
  int32_t token = 0;     // -1: a NaN or +infinity in the row, or nothing but -infinity (a broken
                         // model, or all is banned); the caller fails the request
  float logprob = 0.0F;  // of `token`; set when asked
  int32_t rank = 0;      // 1 = most likely; set when logprobs are asked
  int32_t top_count = 0;
  int32_t top_tokens[kMaxTopLogprobs] = {};
  float top_logprobs[kMaxTopLogprobs] = {};
};

struct SampleArgs {
  float* logits = nullptr;  // [rows, stride]; used as workspace: holds garbage afterwards
  int64_t stride = 0;
  int64_t vocabulary = 0;  // logical
  const SampleRow* rows = nullptr;
  SampleResult* results = nullptr;  // [rows]
  int64_t row_count = 0;
  int32_t* tokens = nullptr;  // [rows] those of the results once more, side by side; may be null
  bool greedy = false;        // true: no row draws, has a given token or wants log-probabilities
};

}  // namespace tandem::kernels
