// Token ids to text while they are being generated. Not here: stop strings (stop_strings.h).
// The pieces joined, flush() included, are what decode() gives for the whole; no piece ends inside
// a character. Threads: one owner at a time. Ownership: borrows the tokenizer, which must outlive
// it.
#pragma once

#include <span>
#include <string>

#include "base/ids.h"
#include "text/tokenizer.h"

namespace tandem::text {

class IncrementalDetokenizer {
 public:
  // `prompt` is what the generated tokens continue: with a prompt that shows any text, the space at
  // the beginning of the generation belongs to it and is kept. Empty: the tokens pushed are the
  // whole text.
  IncrementalDetokenizer(const Tokenizer& tokenizer, DecodeOptions options,
                         std::span<const TokenId> prompt);

  // The text that can be sent now that `id` was generated; often empty, at most a few held bytes
  // later.
  [[nodiscard]] std::string push(TokenId id);

  // What is still held back, as U+FFFD, and ready for nothing more than further flushes (which give
  // "").
  [[nodiscard]] std::string flush();

 private:
  bool shows(TokenId id) const;

  const Tokenizer& tokenizer_;
  DecodeOptions options_;
  int32_t spaces_to_strip_;  // at the front of what comes next
  std::string held_;  // the beginning of an unfinished character: at most 3 bytes between calls
};

}  // namespace tandem::text
