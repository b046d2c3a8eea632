// tokenizer.model in its two forms: tiktoken's text and SentencePiece's protocol buffer.
#include "fuzz/fuzz.h"
#include "fuzz/tokenizer_fuzz.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/tiktoken.h"

namespace tandem::text {
TANDEM_FUZZ_TARGET(input) {
  const auto tokenizer = is_tiktoken(input) ? load_tiktoken(input, "tokenizer.model", {})
                                            : load_sentencepiece(input, "tokenizer.model", {});
  if (tokenizer.ok()) {
    fuzz::check_tokenizer(**tokenizer);
  } else {
    CHECK(!tokenizer.error().message.empty());
  }
}
}  // namespace tandem::text
