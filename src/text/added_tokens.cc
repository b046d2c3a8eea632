#include "text/added_tokens.h"

#include <utf8proc.h>

#include <utility>

#include "base/utf8.h"

namespace tandem::text {
namespace {

// \w of Rust's regular expressions: Alphabetic, marks, decimal digits, connectors, joiners.
bool is_word_char(char32_t c) {
  constexpr std::pair<char32_t, char32_t> kOthers[] = {
      {0x200C, 0x200D},  // joiners
      {0x24B6, 0x24E9},  // letters in circles and squares: symbols that are Alphabetic
      {0x1F130, 0x1F149},
      {0x1F150, 0x1F169},
      {0x1F170, 0x1F189}};
  for (const auto& [first, last] : kOthers) {
    if (c >= first && c <= last) {
      return true;
    }
  }
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

bool word_char_before(std::string_view text) {
  return !text.empty() && is_word_char(front_char(text.substr(last_char_begin(text))).code_point);
}

bool word_char_after(std::string_view text) {
  return !text.empty() && is_word_char(front_char(text).code_point);
}

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token, std::string_view content) {
  if (content.empty()) {
    return;
  }
  first_bytes_[static_cast<uint8_t>(content.front())] = true;
  uint32_t node = 0;
  for (const char c : content) {
    const uint64_t key = IntMap::key(node, static_cast<uint8_t>(c));
    if (const IntMap::Value* child = children_.find(key)) {
      node = child->first;
    } else {
      node = static_cast<uint32_t>(entry_of_node_.size());
      children_.insert(key, {node, 0});
      entry_of_node_.push_back(-1);
    }
  }
  entry_of_node_[node] = static_cast<int32_t>(entries_.size());
  entries_.push_back({token.id, token.special, token.lstrip, token.rstrip, token.single_word});
}

std::optional<AddedTokenMatcher::Found> AddedTokenMatcher::longest_at(std::string_view text,
                                                                      size_t begin,
                                                                      SpecialTokens special) const {
  std::optional<Found> longest;
  uint32_t node = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    const IntMap::Value* child = children_.find(IntMap::key(node, static_cast<uint8_t>(text[i])));
    if (child == nullptr) {
      break;
    }
    node = child->first;
    const int32_t entry = entry_of_node_[node];
    if (entry >= 0 && (special == SpecialTokens::kParse || !entries_[entry].special)) {
      longest = Found{static_cast<size_t>(entry), i + 1};
    }
  }
  if (longest && entries_[longest->entry].single_word &&
      (word_char_before(text.substr(0, begin)) || word_char_after(text.substr(longest->end)))) {
    return std::nullopt;
  }
  return longest;
}

std::vector<AddedTokenMatcher::Part> AddedTokenMatcher::cut(std::string_view text,
                                                            SpecialTokens special,
                                                            int64_t max_tokens) const {
  std::vector<Part> parts;
  int64_t tokens = 0;
  size_t done = 0;  // what stands before is in parts
  size_t i = 0;
  while (i < text.size() && !entries_.empty()) {
    if (!first_bytes_[static_cast<uint8_t>(text[i])]) {
      ++i;
      continue;
    }
    const std::optional<Found> found = longest_at(text, i, special);
    if (!found) {
      ++i;
      continue;
    }
    const Entry& entry = entries_[found->entry];
    size_t begin = i;
    while (entry.lstrip && begin > done) {
      const size_t last = done + last_char_begin(text.substr(done, begin - done));
      if (!is_unicode_space(front_char(text.substr(last)).code_point)) {
        break;
      }
      begin = last;
    }
    size_t end = found->end;
    while (entry.rstrip && end < text.size()) {
      const Utf8Char next = front_char(text.substr(end));
      if (!is_unicode_space(next.code_point)) {
        break;
      }
      end += static_cast<size_t>(next.bytes);
    }
    if (begin > done) {
      parts.push_back({{done, begin}, std::nullopt});
    }
    parts.push_back({{begin, end}, entry.id});
    if (++tokens > max_tokens) {
      return parts;
    }
    done = end;
    i = end;
  }
  if (done < text.size()) {
    parts.push_back({{done, text.size()}, std::nullopt});
  }
  return parts;
}

}  // namespace tandem::text
