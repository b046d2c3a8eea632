// The tokenizer and the chat template inside a GGUF file: vocabularies of the kinds "llama"
// (SentencePiece BPE: pieces, scores, types) and "gpt2" (byte-level BPE: tokens, merges and the
// name of a pre-tokenizer). Threads: any.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "gguf/metadata.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem::text {

// Errors name file and key. The metadata are read, not kept.
Result<std::unique_ptr<Tokenizer>> load_gguf_tokenizer(const gguf::Metadata& metadata);

// The special tokens that templates use, by their texts.
Result<ChatTemplateOptions> gguf_template_options(const gguf::Metadata& metadata);

}  // namespace tandem::text
