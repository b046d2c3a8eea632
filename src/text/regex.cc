#include "text/regex.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace tandem::text {
namespace {

// Real pre-tokenizer patterns need a few steps per character and at most the text's length for a
// run of one class.
constexpr uint32_t kMatchLimit = 20'000'000;
constexpr uint32_t kHeapLimitKib = 256 * 1024;
constexpr size_t kLongestPatternBytes = 64 * 1024;

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct CompileContextDeleter {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

std::string pcre2_text(int code) {
  char buffer[256] = {};
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(buffer), sizeof(buffer));
  return buffer;
}

// White space as Unicode and Oniguruma have it. PCRE2's own \s has U+180E, which ceased to be a
// space in Unicode 6.3, as well.
constexpr std::string_view kSpaces = R"(\t-\r\x85\p{Z})";
constexpr std::string_view kNoSpaces =
    R"(\x00-\x08\x0E-\x1F!-\x84\x86-\x9F\xA1-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027})"
    R"(\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";

// The pattern with \s, \S and [:space:] spelled out.
std::string with_unicode_spaces(std::string_view pattern) {
  std::string out;
  bool escaped = false;  // the character before was written with a backslash
  bool in_class = false;
  size_t class_begin = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const bool plain_hyphen = i > 0 && pattern[i - 1] == '-' && !escaped;
    escaped = false;
    const std::string_view two = pattern.substr(i, 2);
    if (two == "\\s" || two == "\\S") {
      if (in_class && plain_hyphen) {
        out.back() = '\\';  // no range from what stands before it
        out += '-';
      }
      if (in_class) {
        out += two == "\\s" ? kSpaces : kNoSpaces;
      } else {
        out += fmt::format("[{}{}]", two == "\\s" ? "" : "^", kSpaces);
      }
      ++i;
      if (in_class && pattern.substr(i + 1, 1) == "-" && pattern.substr(i + 2, 1) != "]") {
        out += "\\-";  // nor to what stands behind it
        ++i;
        escaped = true;
      }
    } else if (in_class && two == "[:") {
      const size_t end = std::min(pattern.find(":]", i), pattern.size() - 2) + 2;
      const std::string_view name = pattern.substr(i, end - i);
      out += name == "[:space:]" ? kSpaces : name;
      i = end - 1;
    } else if (two.size() == 2 && two[0] == '\\') {
      out += two;
      ++i;
      escaped = true;
    } else {
      if (!in_class && pattern[i] == '[') {
        in_class = true;
        class_begin = i + (pattern.substr(i + 1, 1) == "^" ? 2 : 1);
      } else if (in_class && pattern[i] == ']' && i > class_begin) {
        in_class = false;
      }
      out += pattern[i];
    }
  }
  return out;
}

// Says what of Oniguruma's syntax PCRE2 would silently read as something else.
std::optional<std::string_view> unsupported_syntax(std::string_view pattern) {
  bool in_class = false;
  size_t class_begin = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      if (i + 1 < pattern.size() && (pattern[i + 1] == 'h' || pattern[i + 1] == 'H')) {
        return "\\h (a hexadecimal digit)";
      }
      ++i;
    } else if (!in_class && c == '[') {
      in_class = true;
      class_begin = i + 1;
      if (class_begin < pattern.size() && pattern[class_begin] == '^') {
        ++class_begin;
        ++i;
      }
    } else if (in_class && c == '[' && pattern.substr(i + 1, 1) != ":") {
      return "a character class inside a class";
    } else if (in_class && pattern.substr(i, 2) == "&&") {
      return "an intersection (&&) of character classes";
    } else if (in_class && c == ']' && i > class_begin) {
      in_class = false;
    }
  }
  return std::nullopt;
}

// The same matches in linear time: a search for a run of spaces before a line's end otherwise
// starts anew at each space of every other run. A match can only begin where a run begins, since
// the one before it took the run up to its last line end.
std::string_view linear_form(std::string_view pattern) {
  return pattern == "\\s+$" ? "(?<!\\s)\\s+$" : pattern;
}

}  // namespace

struct Regex::Code {
  std::unique_ptr<pcre2_code, CodeDeleter> code;
  std::unique_ptr<pcre2_match_context, MatchContextDeleter> context;
};

struct Regex::Matcher::State {
  std::unique_ptr<pcre2_match_data, MatchDataDeleter> data;
};

Result<Regex> Regex::compile(std::string_view pattern, std::string_view where) {
  if (pattern.size() > kLongestPatternBytes) {
    return invalid_argument(fmt::format("{}: a regular expression of {} bytes (at most {})", where,
                                        pattern.size(), kLongestPatternBytes));
  }
  if (const auto what = unsupported_syntax(pattern)) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: the regular expression uses {}, which Tandem does not support",
                             where, *what),
                 {}};
  }
  std::unique_ptr<pcre2_compile_context, CompileContextDeleter> options(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(options.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  const auto compiled = [&](std::string_view text) {
    // Oniguruma's ^ and $ always mean lines.
    constexpr uint32_t kFlags = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    code->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), kFlags,
                                   &error, &offset, options.get()));
    return code->code != nullptr;
  };
  // The mistake's place is told as the file has it.
  if (!compiled(with_unicode_spaces(linear_form(pattern))) && !compiled(pattern)) {
    return invalid_argument(
        fmt::format("{}: the regular expression is broken at byte {}: {}; take the file anew from "
                    "the model's source",
                    where, offset, pcre2_text(error)));
  }
  // Without JIT (a system that forbids writable code) matching is slower and otherwise the same.
  static_cast<void>(pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE));
  code->context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(code->context.get(), kMatchLimit);
  pcre2_set_heap_limit(code->context.get(), kHeapLimitKib);
  Regex regex;
  regex.code_ = std::move(code);
  return regex;
}

Regex::Matcher::Matcher(const Regex& regex) : regex_(regex), state_(std::make_unique<State>()) {
  state_->data.reset(pcre2_match_data_create(1, nullptr));
}

Regex::Matcher::~Matcher() = default;

void Regex::Matcher::start(std::string_view text) {
  text_ = text;
  position_ = 0;
  last_end_.reset();
}

Result<std::optional<ByteRange>> Regex::Matcher::next() {
  const auto match = [&](uint32_t flags) {
    return pcre2_match(regex_.code_->code.get(), reinterpret_cast<PCRE2_SPTR>(text_.data()),
                       text_.size(), position_, flags | PCRE2_NO_UTF_CHECK, state_->data.get(),
                       regex_.code_->context.get());
  };
  while (position_ <= text_.size()) {
    int found = match(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      found = match(PCRE2_NO_JIT);  // its stack is the heap, up to kHeapLimitKib
    }
    if (found == PCRE2_ERROR_NOMATCH) {
      break;
    }
    if (found < 0) {
      return invalid_argument(fmt::format(
          "a regular expression of the tokenizer cannot split this text: {}; send a shorter text",
          pcre2_text(found)));
    }
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(state_->data.get());
    const ByteRange range{offsets[0], offsets[1]};
    if (range.end > range.begin) {
      position_ = range.end;
    } else {
      // An empty match moves on by a character, and counts unless it touches the match before it.
      position_ = range.end < text_.size()
                      ? range.end + static_cast<size_t>(front_char(text_.substr(range.end)).bytes)
                      : range.end + 1;
      if (last_end_ == range.end || range.end < range.begin) {
        continue;
      }
    }
    last_end_ = range.end;
    return std::optional<ByteRange>(range);
  }
  position_ = text_.size() + 1;
  return std::optional<ByteRange>();
}

}  // namespace tandem::text
