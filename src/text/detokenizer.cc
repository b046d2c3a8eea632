#include "text/detokenizer.h"

#include <algorithm>

#include "base/utf8.h"

namespace tandem::text {

IncrementalDetokenizer::IncrementalDetokenizer(const Tokenizer& tokenizer, DecodeOptions options,
                                               std::span<const TokenId> prompt)
    : tokenizer_(tokenizer),
      options_(options),
      spaces_to_strip_(tokenizer.traits().stripped_leading_spaces) {
  const auto speaks = [&](TokenId id) { return shows(id) && !tokenizer_.token_bytes(id).empty(); };
  if (std::any_of(prompt.begin(), prompt.end(), speaks)) {
    spaces_to_strip_ = 0;
  }
  // A prompt of token ids may end inside a character that the generation completes; it is one of
  // the last tokens.
  constexpr size_t kLongestCharBytes = 4;
  std::string end;
  for (size_t i = prompt.size(); i > 0 && end.size() < kLongestCharBytes; --i) {
    if (shows(prompt[i - 1])) {
      end.insert(0, tokenizer_.token_bytes(prompt[i - 1]));
    }
  }
  std::string ignored;
  const size_t used =
      append_repaired_utf8(end, Utf8Tail::kMayGrow, InvalidBytes::kOnePerSequence, ignored);
  held_ = end.substr(used);
}

bool IncrementalDetokenizer::shows(TokenId id) const {
  return !(options_.skip_special_tokens && tokenizer_.is_special(id));
}

std::string IncrementalDetokenizer::push(TokenId id) {
  std::string text;
  if (!shows(id)) {
    return text;
  }
  std::string_view bytes = tokenizer_.token_bytes(id);
  while (spaces_to_strip_ > 0 && !bytes.empty()) {
    if (bytes.front() != ' ') {
      spaces_to_strip_ = 0;
      break;
    }
    bytes.remove_prefix(1);
    --spaces_to_strip_;
  }
  held_.append(bytes);
  const size_t used =
      append_repaired_utf8(held_, Utf8Tail::kMayGrow, tokenizer_.traits().invalid_bytes, text);
  held_.erase(0, used);
  return text;
}

std::string IncrementalDetokenizer::flush() {
  std::string text;
  append_repaired_utf8(held_, Utf8Tail::kIsFinal, tokenizer_.traits().invalid_bytes, text);
  held_.clear();
  return text;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, DecodeOptions options) const {
  IncrementalDetokenizer detokenizer(*this, options, {});
  std::string text;
  for (const TokenId id : ids) {
    text += detokenizer.push(id);
  }
  text += detokenizer.flush();
  return text;
}

}  // namespace tandem::text
