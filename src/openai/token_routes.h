// The bodies of /tokenize and /detokenize (vLLM's shapes) and of /v1/models: JSON in, JSON out.
// Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "openai/model_directory.h"

namespace tandem::openai {

// {"prompt"} or {"messages"} -> {"count","max_model_len","tokens","token_strs"}, by the model that
// the body names.
[[nodiscard]] Result<std::string> tokenize(std::string_view body, const ModelDirectory& models);
// {"tokens"} -> {"prompt"}; special tokens are shown.
[[nodiscard]] Result<std::string> detokenize(std::string_view body, const ModelDirectory& models);

// The list of all names of all models.
[[nodiscard]] std::string model_list(const ModelDirectory& models);
// The entry of that list for `name`; kNotFound if there is none.
[[nodiscard]] Result<std::string> model_card(std::string_view name, const ModelDirectory& models);

}  // namespace tandem::openai
