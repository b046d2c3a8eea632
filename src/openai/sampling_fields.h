// The sampling options of a request body, with vLLM's names and ranges. What would be silently
// wrong if it were ignored (beam search, structured output, ...) is refused by name. Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.h"
#include "openai/json_input.h"
#include "request/sampling_limits.h"
#include "request/sampling_params.h"
#include "text/stop_strings.h"

namespace tandem::openai {

// What a request that says nothing gets: from the model's generation_config.json.
struct GenerationDefaults {
  float temperature = 1.0F;
  float top_p = 1.0F;
  int32_t top_k = 0;  // 0: off
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;
  std::optional<int32_t>
      max_tokens;  // the file's max_new_tokens: what a chat gets that asks for no number of its own
};

// A logit divided by or multiplied with a penalty stays a number. Values near the ends are of no
// use; the model folder's default has the same range (model/generation_config.cc).
inline constexpr double kMinRepetitionPenalty = 0.001;
inline constexpr double kMaxRepetitionPenalty = 1000.0;

struct SamplingLimits {
  int32_t max_logprobs = 20;
  int32_t max_stop_strings = 16;
  int32_t max_stop_string_bytes = 1024;
  int32_t max_stop_token_ids = kMostStopTokenIds;
  int32_t max_logit_biases = kMostLogitBiases;
};

// Fills everything but max_tokens, min_tokens, logprobs and stop_strings. Ids are checked against
// `vocabulary`.
[[nodiscard]] Result<SamplingParams> parse_sampling(const FieldReader& fields,
                                                    const GenerationDefaults& defaults,
                                                    const SamplingLimits& limits,
                                                    int32_t vocabulary);

// Null when the body has no stop strings.
[[nodiscard]] Result<std::shared_ptr<const text::StopStrings>> parse_stop_strings(
    const FieldReader& fields, const SamplingLimits& limits);

// Fields that this server understands but cannot honour.
[[nodiscard]] Status refuse_unsupported(const FieldReader& fields);

}  // namespace tandem::openai
