// The pre-tokenizers that GGUF files name in "tokenizer.ggml.pre": how byte-level vocabularies cut
// text. Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace tandem::text {

struct NamedPreTokenizer {
  PreTokenizer cut;
  Normalizer normalizer;
  bool ignore_merges = false;  // see BpeOptions
  bool adds_bos = false;       // where a file does not say
};

// `where` stands in errors. An unknown name is an error that lists the known ones: with another
// pre-tokenizer a model would read other tokens than it was trained with.
Result<NamedPreTokenizer> named_pre_tokenizer(std::string_view name, std::string_view where);

}  // namespace tandem::text
