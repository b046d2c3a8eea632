// The bodies of /tokenize and /detokenize (vLLM's shapes) and of /v1/models: JSON in, JSON out.
// Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "openai/generation_request.h"
#include "request/frontend.h"

namespace tandem::openai {

// {"prompt"} or {"messages"} -> {"count","max_model_len","tokens","token_strs"}.
[[nodiscard]] Result<std::string> tokenize(std::string_view body, const ParseContext& context);
// {"tokens"} -> {"prompt"}; special tokens are shown.
[[nodiscard]] Result<std::string> detokenize(std::string_view body, const ParseContext& context);

// The list of all names of `model`.
[[nodiscard]] std::string model_list(const ServedModel& model);
// One of them; kNotFound otherwise.
[[nodiscard]] Result<std::string> model_card(std::string_view name, const ServedModel& model);

}  // namespace tandem::openai
