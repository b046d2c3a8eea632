#include "loadgen/answer_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/utf8.h"

namespace tandem::loadgen {

namespace {

constexpr size_t kMostPatternBytes = 8192;
constexpr size_t kMostAnswerBytes = 8192;  // longer answers do not match
constexpr int kMostDepth = 32;

Error refuse(std::string_view why) {
  return invalid_argument(
      fmt::format("the pattern {}; it may have literal text, (?:a|b), [abc] and ?", why),
      "pattern");
}

}  // namespace

class AnswerPattern::Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  Result<std::vector<Sequence>> whole() {
    ASSIGN_OR_RETURN(std::vector<Sequence> alternatives, choice(0));
    if (!rest_.empty()) {
      return refuse("has a ) without a (?: before it");
    }
    return alternatives;
  }

 private:
  // Up to the end or to a ')'.
  Result<std::vector<Sequence>> choice(int depth) {
    if (depth > kMostDepth) {
      return refuse("has groups in groups more than 32 deep");
    }
    std::vector<Sequence> alternatives(1);
    while (!rest_.empty() && rest_.front() != ')') {
      if (take("|")) {
        alternatives.emplace_back();
        continue;
      }
      ASSIGN_OR_RETURN(Piece next, piece(depth));
      next.optional = take("?");
      alternatives.back().push_back(std::move(next));
    }
    return alternatives;
  }

  Result<Piece> piece(int depth) {
    Piece read;
    if (take("(?:")) {
      ASSIGN_OR_RETURN(read.alternatives, choice(depth + 1));
      if (!take(")")) {
        return refuse("has a (?: without a )");
      }
      return read;
    }
    if (take("[")) {
      ASSIGN_OR_RETURN(read.members, members());
      return read;
    }
    constexpr std::string_view kSpecial = "*+{}^$.(]?";
    if (kSpecial.find(rest_.front()) != kSpecial.npos) {
      return refuse(fmt::format("has '{}' where a piece begins", rest_.front()));
    }
    ASSIGN_OR_RETURN(read.text, literal());
    return read;
  }

  // The members of a [...], whose '[' is taken.
  Result<std::string> members() {
    std::string all;
    while (!rest_.empty() && rest_.front() != ']') {
      if (rest_.front() == '^' && all.empty()) {
        return refuse("has a [^");
      }
      ASSIGN_OR_RETURN(const char first, member());
      char last = first;
      if (rest_.size() > 1 && rest_[0] == '-' && rest_[1] != ']') {
        rest_.remove_prefix(1);
        ASSIGN_OR_RETURN(last, member());
      }
      if (last < first) {
        return refuse("has a range that runs backwards");
      }
      for (int c = first; c <= last; ++c) {
        all += static_cast<char>(c);
      }
    }
    if (!take("]") || all.empty()) {
      return refuse("has a [ without members or without a ]");
    }
    return all;
  }

  Result<char> member() {
    ASSIGN_OR_RETURN(const std::string character, literal());
    if (static_cast<unsigned char>(character.front()) > 127) {
      return refuse("has a character beyond ASCII between [ and ]");
    }
    return character.front();
  }

  // One character, all its bytes; or the sign behind a backslash.
  Result<std::string> literal() {
    if (take("\\") && (rest_.empty() || std::isalnum(static_cast<unsigned char>(rest_[0])) != 0)) {
      return refuse("has a backslash that is not before a sign");
    }
    if (rest_.empty()) {
      return refuse("ends too early");
    }
    size_t bytes = 1;
    while (static_cast<unsigned char>(rest_.front()) > 127 && bytes < rest_.size() &&
           continues_char(rest_[bytes])) {
      ++bytes;
    }
    std::string character(rest_.substr(0, bytes));
    rest_.remove_prefix(bytes);
    return character;
  }

  bool take(std::string_view begin) {
    const bool taken = rest_.starts_with(begin);
    rest_.remove_prefix(taken ? begin.size() : 0);
    return taken;
  }

  std::string_view rest_;
};

Result<AnswerPattern> AnswerPattern::parse(std::string_view text) {
  if (text.size() > kMostPatternBytes) {
    return refuse(fmt::format("is longer than {} bytes", kMostPatternBytes));
  }
  AnswerPattern pattern;
  ASSIGN_OR_RETURN(pattern.alternatives_, Parser(text).whole());
  return pattern;
}

bool AnswerPattern::matches(std::string_view answer) const {
  if (answer.size() > kMostAnswerBytes) {
    return false;
  }
  Places begin(answer.size() + 1);
  begin.front() = true;
  Piece whole;
  whole.alternatives = alternatives_;
  return after(whole, answer, begin).back();
}

AnswerPattern::Places AnswerPattern::after(const Sequence& sequence, std::string_view answer,
                                           Places from) {
  for (const Piece& piece : sequence) {
    from = after(piece, answer, from);
  }
  return from;
}

AnswerPattern::Places AnswerPattern::after(const Piece& piece, std::string_view answer,
                                           const Places& from) {
  Places to = piece.optional ? from : Places(from.size());
  const size_t length = piece.text.empty() ? 1 : piece.text.size();
  const auto begins_at = [&](size_t i) {
    return piece.text.empty() ? piece.members.find(answer[i]) != std::string::npos
                              : answer.substr(i, length) == piece.text;
  };
  for (size_t i = 0; piece.alternatives.empty() && i + length <= answer.size(); ++i) {
    if (from[i] && begins_at(i)) {
      to[i + length] = true;
    }
  }
  for (const Sequence& alternative : piece.alternatives) {
    const Places ends = after(alternative, answer, from);
    for (size_t i = 0; i < ends.size(); ++i) {
      to[i] = to[i] || ends[i];
    }
  }
  return to;
}

}  // namespace tandem::loadgen
