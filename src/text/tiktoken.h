// Reads a tokenizer.model in tiktoken's text form ("base64-of-bytes rank" a line), as Llama-3 ships
// it, with Llama-3's pattern and its 256 special tokens behind the last rank. Threads: any; pure
// functions.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace tandem::text {

// Whether the content of a tokenizer.model looks like this form.
[[nodiscard]] bool is_tiktoken(std::string_view content);

// `file` names the content in errors.
Result<std::unique_ptr<Tokenizer>> load_tiktoken(std::string_view content, const std::string& file,
                                                 const TokenizerConfig& config);

}  // namespace tandem::text
