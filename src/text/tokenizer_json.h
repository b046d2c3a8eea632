// Reads a tokenizer.json of Hugging Face's tokenizers: byte-pair encoding, byte level or with byte
// fallback. A component that is not built is an error that names it. Threads: any; pure function.
#pragma once

#include <filesystem>
#include <memory>

#include "base/result.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace tandem::text {

Result<std::unique_ptr<Tokenizer>> load_tokenizer_json(const std::filesystem::path& path,
                                                       const TokenizerConfig& config);

}  // namespace tandem::text
