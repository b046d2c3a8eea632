// The bodies of /v1/completions and /v1/chat/completions: JSON in, checked Requests out. No
// sockets, no state. Threads: any; tokenizing a long prompt takes time in proportion to it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "openai/json_input.h"
#include "openai/sampling_fields.h"
#include "request/frontend.h"
#include "request/request.h"
#include "request/service.h"
#include "text/chat_template.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace tandem::openai {

enum class Endpoint : uint8_t { kCompletions, kChat };

struct RequestLimits {
  JsonLimits json;
  SamplingLimits sampling;
  int32_t max_prompts = 256;                   // in one body
  int32_t max_choices = 1024;                  // prompts times n
  int64_t max_scores = 1 << 20;                // log-probabilities of prompt tokens in one answer
  int64_t max_echo_bytes = int64_t{32} << 20;  // echoed prompts in one answer
  int64_t max_listed_tokens = 1 << 20;         // of /tokenize and /detokenize, if over the context
};

// Prompts of up to so many tokens are counted to the last one, which helps to shorten them; of
// longer ones the beginning is looked at.
[[nodiscard]] constexpr int64_t max_counted_tokens(int32_t max_model_len) {
  constexpr int64_t kMinBeyond = 4096;
  constexpr int64_t kMaxBeyond = 32768;
  return max_model_len + std::clamp<int64_t>(max_model_len, kMinBeyond, kMaxBeyond);
}

// What parsing needs to know about the served model. Borrows.
struct ParseContext {
  const ServedModel& model;
  const text::Tokenizer& tokenizer;
  const text::ChatTemplate& chat_template;
  GenerationDefaults defaults;
  RequestLimits limits;
  std::function<std::chrono::local_seconds()>
      local_time;  // for templates that print the date; absent: 1970
  [[nodiscard]] std::chrono::local_seconds now() const {
    return local_time ? local_time() : std::chrono::local_seconds();
  }
};

enum class StreamUsage : uint8_t { kNone, kAtEnd, kContinuous };

struct GenerationRequest {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string model;  // the name the client used
  std::vector<std::vector<TokenId>> prompts;
  std::optional<Error> too_long;      // a text does not fit the context: what make_request answers
  SamplingParams sampling;            // max_tokens: see max_tokens below
  std::optional<int32_t> max_tokens;  // absent: the rest of the context
  int32_t n = 1;
  bool stream = false;
  StreamUsage stream_usage = StreamUsage::kNone;
  bool skip_special_tokens = true;
  bool tokens_as_ids = false;             // logprobs name tokens "token_id:7"
  bool echo = false;                      // the prompt stands before the answer, in logprobs too
  std::vector<std::string> prompt_texts;  // with echo: of each prompt
  int32_t prompt_logprobs = -1;  // vLLM's field of that name: how many alternatives, -1: not asked
  bool discard_output = false;   // max_tokens 0: the engine makes a token, the answer omits it
  ServiceClaim service;          // claims of the body; request/service.h settles them
  std::string service_tier = "default";  // the one that is used, to be named in the answer
  bool explain = false;                  // how it was served, in the answer's usage
  bool honoured = true;                  // the policy reads all of the service that it claims
  std::shared_ptr<const text::StopStrings> stop_strings;  // may be null
  std::string cache_salt;
};

// Reads a body for one model. kNotFound: it names another one (code "model_not_found");
// kInvalidArgument and kUnsupported name the field.
// A text that cannot fit the context is not tokenized to its end, nor are those after it;
// make_request says so.
[[nodiscard]] Result<GenerationRequest> parse_generation(Endpoint endpoint,
                                                         const FieldReader& fields,
                                                         const ParseContext& context);

// The Request of one prompt, max_tokens cut to what the context leaves; class, level, SLO, sink,
// tag, ids and tenant are the caller's. The only error: the prompt does not fit (code
// "context_length_exceeded").
[[nodiscard]] Result<Request> make_request(const GenerationRequest& generation, size_t prompt,
                                           const ServedModel& model);

// `name` empty: the model's own name. kNotFound otherwise unless it is a name or alias of `model`.
[[nodiscard]] Result<std::string> resolve_model(std::string_view name, const ServedModel& model);
// The error for a name that is not among `offered`, the names of all models.
[[nodiscard]] Error unknown_model(std::string_view name, std::span<const std::string_view> offered);

// A list of token ids below `vocabulary`.
[[nodiscard]] Result<std::vector<TokenId>> parse_token_ids(const Json& list, std::string_view field,
                                                           int32_t vocabulary);

}  // namespace tandem::openai
