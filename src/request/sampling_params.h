// How the tokens of a sequence are chosen and when it ends. Validated where it is parsed (openai/);
// plain data from there on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace tandem {

struct LogitBias {
  TokenId token = 0;
  float bias = 0.0F;  // -100 .. 100, added to the logit
};

// What is read for every drawn token comes first and fits a cache line.
struct alignas(64) SamplingParams {
  float temperature = 1.0F;         // 0: greedy
  float top_p = 1.0F;               // (0, 1]
  int32_t top_k = 0;                // 0: off
  float min_p = 0.0F;               // [0, 1]
  float repetition_penalty = 1.0F;  // > 0
  float presence_penalty = 0.0F;    // -2 .. 2
  float frequency_penalty = 0.0F;   // -2 .. 2
  int32_t logprobs = -1;            // -1: none; k: chosen token and the k most likely ones
  std::vector<LogitBias> logit_bias;
  std::optional<uint64_t> seed;  // absent: the engine draws one and records it
  int32_t prompt_logprobs =
      -1;                   // the same of the prompt's tokens but the first, which follows none
  int32_t max_tokens = 16;  // output tokens, >= 1; already cut to the context by the front end
  int32_t min_tokens = 0;   // no stop id before this many output tokens
  bool ignore_eos = false;
  std::vector<TokenId>
      stop_token_ids;  // end the sequence; the token itself is not part of the text
  std::vector<std::string>
      stop_strings;  // found and cut in text/ by the front end, which then calls Frontend::stop
  bool include_stop_string = false;
};

}  // namespace tandem
