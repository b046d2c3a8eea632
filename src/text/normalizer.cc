#include "text/normalizer.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "text/json_fields.h"

namespace tandem::text {
namespace {

// NFKC grows a character to 18 at most; a Replace may hold anything.
constexpr size_t kMostGrowth = 32;
constexpr size_t kAlwaysAllowedBytes = size_t{16} << 20;

// Text below U+0300 is in NFC, and stays so whatever stands beside it.
bool surely_nfc(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<uint8_t>(c) >= 0xCC; });
}

bool is_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<uint8_t>(c) >= 0x80; });
}

// Puts runs of combining marks into canonical order. The library's own way is quadratic in a run.
void order_marks(std::vector<utf8proc_int32_t>& code_points) {
  const auto combining_class = [](utf8proc_int32_t c) {
    return utf8proc_get_property(c)->combining_class;
  };
  for (size_t i = 0; i < code_points.size(); ++i) {
    if (combining_class(code_points[i]) == 0) {
      continue;
    }
    size_t end = i + 1;
    while (end < code_points.size() && combining_class(code_points[end]) != 0) {
      ++end;
    }
    const auto first = code_points.begin();
    std::stable_sort(first + static_cast<ptrdiff_t>(i), first + static_cast<ptrdiff_t>(end),
                     [&](auto a, auto b) { return combining_class(a) < combining_class(b); });
    i = end;
  }
}

std::string lowercase(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = front_char(text.substr(i));
    if (c.code_point == 0x130) {
      lower += "i\xCC\x87";  // the one character whose lower case is two
    } else {
      append_utf8(
          static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code_point))),
          lower);
    }
    i += static_cast<size_t>(c.bytes);
  }
  return lower;
}

}  // namespace

Result<std::string> to_unicode_form(std::string_view text, UnicodeForm form) {
  if (is_ascii(text) || (form == UnicodeForm::kNfc && surely_nfc(text))) {
    return std::string(text);
  }
  const bool compatibility = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  const bool compose = form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
  const auto decompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                        (compatibility ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> code_points;
  code_points.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = front_char(text.substr(i));
    i += static_cast<size_t>(c.bytes);
    utf8proc_int32_t parts[32] = {};
    int last_boundary_class = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code_point), parts,
                                std::size(parts), decompose, &last_boundary_class);
    if (count < 0 || count > static_cast<utf8proc_ssize_t>(std::size(parts))) {
      return Error{ErrorCode::kInternal,
                   fmt::format("U+{:04X} cannot be decomposed", uint32_t{c.code_point}),
                   {}};
    }
    code_points.insert(code_points.end(), parts, parts + count);
  }
  order_marks(code_points);
  utf8proc_ssize_t count = static_cast<utf8proc_ssize_t>(code_points.size());
  if (compose) {
    count = utf8proc_normalize_utf32(
        code_points.data(), count,
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  }
  std::string result;
  result.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(static_cast<char32_t>(code_points[static_cast<size_t>(i)]), result);
  }
  return result;
}

Result<Normalizer> Normalizer::parse(const nlohmann::json& value, std::string_view where) {
  Normalizer normalizer;
  RETURN_IF_ERROR(parse_into(value, where, normalizer.steps_));
  return normalizer;
}

Status Normalizer::parse_into(const nlohmann::json& value, std::string_view where,
                              std::vector<Step>& steps) {
  if (value.is_null()) {
    return {};
  }
  if (!value.is_object()) {
    return bad_file(where, "is not an object");
  }
  ASSIGN_OR_RETURN(const std::string type, string_field(value, "type", where));
  if (type == "Sequence") {
    const nlohmann::json* list = find_field(value, "normalizers");
    if (list == nullptr || !list->is_array()) {
      return bad_file(where, "\"normalizers\" is not a list");
    }
    for (const nlohmann::json& item : *list) {
      RETURN_IF_ERROR(parse_into(item, where, steps));
    }
  } else if (type == "Prepend") {
    ASSIGN_OR_RETURN(std::string prefix, string_field(value, "prepend", where));
    steps.emplace_back(Prepend{std::move(prefix)});
  } else if (type == "Replace") {
    const nlohmann::json* what = find_field(value, "pattern");
    ASSIGN_OR_RETURN(Pattern pattern,
                     Pattern::parse(what == nullptr ? nlohmann::json() : *what, where));
    ASSIGN_OR_RETURN(std::string content, string_field(value, "content", where));
    steps.emplace_back(Replace{std::move(pattern), std::move(content)});
  } else if (type == "NFC") {
    steps.emplace_back(UnicodeForm::kNfc);
  } else if (type == "NFD") {
    steps.emplace_back(UnicodeForm::kNfd);
  } else if (type == "NFKC") {
    steps.emplace_back(UnicodeForm::kNfkc);
  } else if (type == "NFKD") {
    steps.emplace_back(UnicodeForm::kNfkd);
  } else if (type == "Strip") {
    ASSIGN_OR_RETURN(const bool left, bool_field(value, "strip_left", where, true));
    ASSIGN_OR_RETURN(const bool right, bool_field(value, "strip_right", where, true));
    steps.emplace_back(Strip{left, right});
  } else if (type == "Lowercase") {
    steps.emplace_back(Lowercase{});
  } else {
    return unsupported(where, fmt::format("the normalizer \"{}\"", type));
  }
  return {};
}

Result<std::string> Normalizer::apply(std::string_view text) const {
  const size_t limit = std::max(kAlwaysAllowedBytes, kMostGrowth * text.size());
  std::string result(text);
  for (const Step& step : steps_) {
    if (const auto* replace = std::get_if<Replace>(&step)) {
      Pattern::Finder finder(replace->pattern);
      std::vector<ByteRange> matches;
      RETURN_IF_ERROR(finder.find_all(result, matches));
      if (result.size() + matches.size() * replace->content.size() > limit) {
        return invalid_argument("the tokenizer's normalizer makes this text too long; shorten it");
      }
      std::string replaced;
      size_t done = 0;
      for (const ByteRange& match : matches) {
        replaced.append(result, done, match.begin - done).append(replace->content);
        done = match.end;
      }
      result = replaced.append(result, done);
    } else {
      ASSIGN_OR_RETURN(result, run(step, std::move(result)));
    }
  }
  return result;
}

Result<std::string> Normalizer::run(const Step& step, std::string text) {
  if (const auto* prepend = std::get_if<Prepend>(&step)) {
    return text.empty() ? text : prepend->prefix + text;
  }
  if (const auto* form = std::get_if<UnicodeForm>(&step)) {
    return to_unicode_form(text, *form);
  }
  if (const auto* strip = std::get_if<Strip>(&step)) {
    std::string_view rest = text;
    while (strip->left && !rest.empty() && is_unicode_space(front_char(rest).code_point)) {
      rest.remove_prefix(static_cast<size_t>(front_char(rest).bytes));
    }
    while (strip->right && !rest.empty()) {
      const size_t last = last_char_begin(rest);
      if (!is_unicode_space(front_char(rest.substr(last)).code_point)) {
        break;
      }
      rest = rest.substr(0, last);
    }
    return std::string(rest);
  }
  return lowercase(text);
}

}  // namespace tandem::text
