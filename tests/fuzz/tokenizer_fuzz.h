// What holds for every tokenizer that could be loaded.
#pragma once

#include <array>

#include "base/utf8.h"
#include "fuzz/fuzz.h"
#include "text/tokenizer.h"

namespace tandem::fuzz {

// Whatever a vocabulary says: texts become ids inside it, and ids become valid UTF-8.
inline void check_tokenizer(const text::Tokenizer& tokenizer) {
  constexpr std::array<std::string_view, 3> kTexts = {
      "", "Hello, world! 12345\n\n  \t<s></s><|endoftext|>",
      "\xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x98\x80 e\xcc\x81 \xef\xac\x81 "
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
  constexpr TokenId kLastProbed = 400;
  for (const std::string_view text : kTexts) {
    const auto ids = tokenizer.encode(text, {.parse_special_tokens = true});
    if (!ids.ok()) {
      CHECK(!ids.error().message.empty());
      continue;
    }
    for (const TokenId id : *ids) {
      CHECK(id >= 0 && id < tokenizer.vocab_size(), "id {} of {}", id, tokenizer.vocab_size());
    }
    const std::string decoded = tokenizer.decode(*ids, {.skip_special_tokens = false});
    CHECK(!find_invalid_utf8(decoded));
  }
  for (TokenId id = -1; id < kLastProbed; ++id) {
    use(tokenizer.token_bytes(id).size() + (tokenizer.is_special(id) ? 1 : 0));
  }
}

}  // namespace tandem::fuzz
