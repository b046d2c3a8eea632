#include "jinja/lexer.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "jinja/literal.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

// Python's line ends become \n, and one at the very end of the source is dropped
// (keep_trailing_newline is off).
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) lex_data();
    push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_here(std::string_view message) const {
    fail(fmt::format("line {}: {}", line_, message));
  }

  [[nodiscard]] std::string_view rest() const { return std::string_view(source_).substr(at_); }
  [[nodiscard]] bool looking_at(std::string_view text) const {
    return rest().substr(0, text.size()) == text;
  }

  void advance(size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      if (source_[at_ + i] == '\n') ++line_;
    }
    at_ += bytes;
    line_starting_ = bytes > 0 ? source_[at_ - 1] == '\n' : line_starting_;
  }

  void push(TokenKind kind, std::string text) {
    tokens_.push_back({kind, line_, std::move(text), 0, 0});
  }

  [[nodiscard]] size_t next_tag() const {
    for (size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' &&
          (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#'))
        return i;
    }
    return std::string::npos;
  }

  // Text up to the next tag, then the tag.
  void lex_data() {
    const size_t tag = next_tag();
    if (tag == std::string::npos) {
      push(TokenKind::kData, std::string(rest()));
      advance(source_.size() - at_);
      return;
    }
    const char opener = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    push_text_before(source_.substr(at_, tag - at_), opener, sign);
    const bool has_sign = sign == '-' || sign == '+';
    advance(tag - at_ + (has_sign ? 3 : 2));
    if (opener == '#') {
      skip_comment();
    } else if (opener == '{') {
      push(TokenKind::kVariableBegin, "{{");
      lex_tag(TokenKind::kVariableEnd);
    } else if (!lex_raw()) {
      push(TokenKind::kBlockBegin, "{%");
      lex_tag(TokenKind::kBlockEnd);
    }
  }

  // `-` strips all white space before the tag; lstrip_blocks strips the line's indentation before a
  // block or comment.
  void push_text_before(std::string text, char opener, char sign) {
    if (sign == '-') {
      text = std::string(strip(text, Side::kRight));
    } else if (sign != '+' && opener != '{') {
      const size_t line_begin = text.rfind('\n') + 1;  // npos + 1 is 0
      if (line_begin > 0 || line_starting_) {
        if (strip(std::string_view(text).substr(line_begin), Side::kLeft).empty())
          text.resize(line_begin);
      }
    }
    if (!text.empty()) push(TokenKind::kData, std::move(text));
  }

  void skip_white_space() {
    const std::string_view left = rest();
    advance(left.size() - strip(left, Side::kLeft).size());
  }

  // Consumes what follows `end` by its sign: `-` all white space, none one newline (trim_blocks),
  // `+` nothing.
  bool take_closing(std::string_view end) {
    const char sign = rest().empty() ? '\0' : source_[at_];
    if (looking_at(end)) {
      advance(end.size());
      if (end != "}}" && looking_at("\n")) advance(1);
      return true;
    }
    const bool signed_end = rest().size() > end.size() && rest().substr(1, end.size()) == end;
    if (!signed_end || (sign != '-' && (sign != '+' || end == "}}"))) return false;
    advance(1 + end.size());
    if (sign == '-') skip_white_space();
    return true;
  }

  void skip_comment() {
    const size_t close = source_.find("#}", at_);
    if (close == std::string::npos) fail_here("a comment is not closed: '#}' is missing");
    const char sign = close > at_ ? source_[close - 1] : '\0';
    const bool has_sign = sign == '-' || sign == '+';
    advance(close - at_ - (has_sign ? 1 : 0));
    take_closing("#}");
  }

  // `{%` is consumed. True when it was a raw block, whose text is copied as it is.
  bool lex_raw() {
    std::string_view left = strip(rest(), Side::kLeft);
    if (left.substr(0, 3) != "raw") return false;
    left = strip(left.substr(3), Side::kLeft);
    const bool stripped = left.substr(0, 3) == "-%}";
    if (!stripped && left.substr(0, 2) != "%}") return false;
    advance(source_.size() - at_ - left.size() + (stripped ? 3 : 2));
    if (stripped) skip_white_space();
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 2)) {
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      const size_t inside = tag + (sign == '-' || sign == '+' ? 3 : 2);
      const std::string_view after = strip(std::string_view(source_).substr(inside), Side::kLeft);
      if (after.substr(0, 6) != "endraw") continue;
      const std::string_view closing = strip(after.substr(6), Side::kLeft);
      if (closing.substr(0, 2) != "%}" && closing.substr(0, 3) != "-%}" &&
          closing.substr(0, 3) != "+%}")
        continue;
      push_text_before(source_.substr(at_, tag - at_), '%', sign);
      advance(source_.size() - closing.size() - at_);
      take_closing("%}");
      return true;
    }
    fail_here("a raw block is not closed: '{% endraw %}' is missing");
  }

  // Expression tokens up to the end of the tag.
  void lex_tag(TokenKind end_kind) {
    const std::string_view end = end_kind == TokenKind::kBlockEnd ? "%}" : "}}";
    while (true) {
      if (at_ >= source_.size())
        fail_here(fmt::format("a tag is not closed: '{}' is missing", end));
      if (brackets_.empty()) {
        const int line = line_;
        if (take_closing(end)) {
          push(end_kind, std::string(end));
          tokens_.back().line = line;
          return;
        }
      }
      const size_t before = at_;
      skip_white_space();
      if (at_ != before) continue;
      lex_token();
    }
  }

  void lex_token() {
    const char c = source_[at_];
    const CodePoint point = decode_at(source_, at_);
    if (c >= '0' && c <= '9') {
      lex_number();
    } else if (c == '\'' || c == '"') {
      lex_string(c);
    } else if (c == '_' || is_alpha(point.code)) {
      lex_name();
    } else {
      lex_operator();
    }
  }

  void lex_name() {
    size_t end = at_;
    while (end < source_.size()) {
      const CodePoint point = decode_at(source_, end);
      if (!continues_name(point.code)) break;
      end += point.bytes;
    }
    push(TokenKind::kName, source_.substr(at_, end - at_));
    advance(end - at_);
  }

  void lex_number() {
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    const NumberLiteral number =
        scan_number(rest(), after_dot ? Fraction::kNo : Fraction::kAllowed);
    if (!number.error.empty()) fail_here(number.error);
    push(number.is_real ? TokenKind::kFloat : TokenKind::kInteger,
         std::string(rest().substr(0, number.bytes)));
    tokens_.back().integer = number.integer;
    tokens_.back().real = number.real;
    advance(number.bytes);
  }

  void lex_string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_here("a string is not closed");
    const std::optional<std::string> decoded =
        decode_escapes(source_.substr(at_ + 1, end - at_ - 1));
    if (!decoded)
      fail_here("a string holds a broken \\x or \\u escape, or \\N{...}, which is not supported");
    push(TokenKind::kString, *decoded);
    advance(end + 1 - at_);
  }

  void lex_operator() {
    constexpr std::string_view kLong[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,;";
    for (const std::string_view text : kLong) {
      if (looking_at(text)) {
        push(TokenKind::kOperator, std::string(text));
        advance(2);
        return;
      }
    }
    const char c = source_[at_];
    if (kShort.find(c) == std::string_view::npos) {
      fail_here(fmt::format("unexpected character '{}'",
                            rest().substr(0, decode_at(source_, at_).bytes)));
    }
    if (c == '(' || c == '[' || c == '{') {
      brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets_.empty()) fail_here(fmt::format("unexpected '{}'", c));
      if (brackets_.back() != c)
        fail_here(fmt::format("unexpected '{}', expected '{}'", c, brackets_.back()));
      brackets_.pop_back();
    }
    push(TokenKind::kOperator, std::string(1, c));
    advance(1);
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string brackets_;  // the closing brackets still owed, innermost last
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace tandem::jinja
