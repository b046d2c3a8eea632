#include "text/detokenizer.h"

#include <algorithm>

#include "base/utf8.h"

namespace tandem::text {

namespace {

// A prompt of token ids may end inside a character that the generation completes; the character
// begins in one of the last tokens. Returns its bytes.
template <class Shows>
std::string unfinished_end(const Tokenizer& tokenizer, std::span<const TokenId> prompt,
                           const Shows& shows) {
  constexpr size_t kLongestCharBytes = 4;
  std::string end;
  for (size_t i = prompt.size(); i > 0 && end.size() < kLongestCharBytes; --i) {
    if (shows(prompt[i - 1])) {
      end.insert(0, tokenizer.token_bytes(prompt[i - 1]));
    }
  }
  std::string ignored;
  const size_t used =
      append_repaired_utf8(end, Utf8Tail::kMayGrow, InvalidBytes::kOnePerSequence, ignored);
  return end.substr(used);
}

}  // namespace

std::string CharacterJoiner::push(std::string_view bytes) {
  std::string text;
  held_.append(bytes);
  held_.erase(0, append_repaired_utf8(held_, Utf8Tail::kMayGrow, invalid_, text));
  chars_ += count_chars(text);
  return text;
}

std::string CharacterJoiner::held_text() const {
  std::string text;
  append_repaired_utf8(held_, Utf8Tail::kIsFinal, invalid_, text);
  return text;
}

std::string CharacterJoiner::flush() {
  std::string text = held_text();
  chars_ += count_chars(text);
  held_.clear();
  return text;
}

int64_t CharacterJoiner::offset_of(std::string_view bytes) const {
  if (held_.empty() || bytes.empty()) {
    return chars_;
  }
  const std::string joined = held_ + bytes.front();
  std::string text;
  const size_t used = append_repaired_utf8(joined, Utf8Tail::kMayGrow, invalid_, text);
  const bool continues = used == 0 || text == joined;
  return continues ? chars_ : chars_ + count_chars(held_text());
}

IncrementalDetokenizer::IncrementalDetokenizer(const Tokenizer& tokenizer, DecodeOptions options,
                                               std::span<const TokenId> prompt)
    : tokenizer_(tokenizer),
      options_(options),
      spaces_to_strip_(tokenizer.traits().stripped_leading_spaces),
      joiner_(tokenizer.traits().invalid_bytes,
              unfinished_end(tokenizer, prompt, [this](TokenId id) { return shows(id); })) {
  const auto speaks = [&](TokenId id) { return shows(id) && !tokenizer_.token_bytes(id).empty(); };
  if (std::any_of(prompt.begin(), prompt.end(), speaks)) {
    spaces_to_strip_ = 0;
  }
}

bool IncrementalDetokenizer::shows(TokenId id) const {
  return !(options_.skip_special_tokens && tokenizer_.is_special(id));
}

std::string IncrementalDetokenizer::push(TokenId id) {
  if (!shows(id)) {
    return {};
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
  return joiner_.push(bytes);
}

int64_t IncrementalDetokenizer::offset_of(TokenId id) const {
  return joiner_.offset_of(shows(id) ? tokenizer_.token_bytes(id) : std::string_view());
}

std::string IncrementalDetokenizer::flush() { return joiner_.flush(); }

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
