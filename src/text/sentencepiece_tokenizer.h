// Reads a tokenizer.model of SentencePiece (byte-pair encoding or unigram) through its library, and
// cuts special tokens out around it. Threads: const and shared.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace tandem::text {

// `file` names the content in errors.
Result<std::unique_ptr<Tokenizer>> load_sentencepiece(std::string_view content,
                                                      const std::string& file,
                                                      const TokenizerConfig& config);

}  // namespace tandem::text
