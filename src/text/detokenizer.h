// Token ids to text while they are being generated. Not here: stop strings (stop_strings.h).
// The pieces joined, flush() included, are what decode() gives for the whole; no piece ends inside
// a character. Threads: one owner at a time. Ownership: borrows the tokenizer, which must outlive
// it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/ids.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

namespace tandem::text {

// Bytes to whole characters; bytes that are not UTF-8 become U+FFFD. Counts the characters.
class CharacterJoiner {
 public:
  explicit CharacterJoiner(InvalidBytes invalid, std::string held = {})
      : invalid_(invalid), held_(std::move(held)) {}

  // The characters that are complete now that `bytes` came.
  [[nodiscard]] std::string push(std::string_view bytes);
  // The text of the unfinished character: U+FFFD, or nothing if none is unfinished. flush() also
  // drops its bytes.
  [[nodiscard]] std::string held_text() const;
  [[nodiscard]] std::string flush();

  // The offset of `bytes` if they were pushed next: the number of characters before the character
  // that their first byte begins or continues.
  [[nodiscard]] int64_t offset_of(std::string_view bytes) const;

 private:
  InvalidBytes invalid_;
  std::string held_;   // the beginning of an unfinished character: at most 3 bytes between calls
  int64_t chars_ = 0;  // given out so far
};

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

  // The offset of the text of `id` if it were pushed next, in characters of the text since the
  // prompt. A token that continues a character begins where that character does.
  [[nodiscard]] int64_t offset_of(TokenId id) const;

  // What is still held back, as U+FFFD, and ready for nothing more than further flushes (which give
  // "").
  [[nodiscard]] std::string flush();

 private:
  bool shows(TokenId id) const;

  const Tokenizer& tokenizer_;
  DecodeOptions options_;
  int32_t spaces_to_strip_;  // at the front of what comes next
  CharacterJoiner joiner_;
};

}  // namespace tandem::text
