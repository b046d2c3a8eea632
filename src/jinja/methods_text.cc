// Methods of str that cut, find, join and pad. Positions are in code points.
#include <fmt/format.h>

#include <algorithm>

#include "jinja/builtins.h"
#include "jinja/format.h"
#include "jinja/lines.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

template <Side kSide>
Value strip_method(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "strip", {"chars"});
  const Text& text = *object.as_text();
  const Value characters = bound.get(0, Value());
  const std::string_view stripped =
      characters.is_none()
          ? strip(text.text, kSide)
          : strip_characters(text.text, require_text(characters, "strip arg").text, kSide);
  return make_string_like(text, std::string(stripped), interpreter.work());
}

Value make_texts(const std::vector<std::string_view>& parts, SequenceKind kind, Work& work) {
  std::vector<Value> values;
  for (const std::string_view part : parts) values.push_back(make_string(std::string(part), work));
  return make_sequence(kind, std::move(values), work);
}

size_t next_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint point = decode_at(text, at);
    if (is_space(point.code)) return at;
    at += point.bytes;
  }
  return at;
}

std::vector<std::string_view> split_words(std::string_view text, int64_t limit) {
  std::vector<std::string_view> words;
  std::string_view rest = strip(text, Side::kLeft);
  while (!rest.empty()) {
    if (limit >= 0 && static_cast<int64_t>(words.size()) == limit) {
      words.push_back(rest);  // with the white space at its end
      break;
    }
    const size_t end = next_space(rest, 0);
    words.push_back(rest.substr(0, end));
    rest = strip(rest.substr(end), Side::kLeft);
  }
  return words;
}

std::vector<std::string_view> split_words_from_right(std::string_view text, int64_t limit) {
  std::vector<std::string_view> words;
  std::string_view rest = strip(text, Side::kRight);
  const std::vector<std::string_view> all = split_words(rest, -1);
  if (limit < 0 || static_cast<int64_t>(all.size()) <= limit) return all;
  const auto kept = static_cast<ptrdiff_t>(limit);
  const std::string_view first_cut =
      kept == 0 ? rest.substr(rest.size()) : all[all.size() - static_cast<size_t>(limit)];
  rest = rest.substr(0, static_cast<size_t>(first_cut.data() - rest.data()));
  words.push_back(strip(rest, Side::kRight));
  words.insert(words.end(), all.end() - kept, all.end());
  return words;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       int64_t limit) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t found = text.find(separator, begin);
    if (found == std::string_view::npos) break;
    parts.push_back(text.substr(begin, found - begin));
    begin = found + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<std::string_view> split_at_from_right(std::string_view text, std::string_view separator,
                                                  int64_t limit) {
  std::vector<std::string_view> parts;
  std::string_view rest = text;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t found = rest.rfind(separator);
    if (found == std::string_view::npos) break;
    parts.push_back(rest.substr(found + separator.size()));
    rest = rest.substr(0, found);
  }
  parts.push_back(rest);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <Side kFrom>
Value split(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "split", {"sep", "maxsplit"});
  Work& work = interpreter.work();
  const std::string& text = object.as_text()->text;
  const int64_t limit = to_count(bound.get(1, Value::integer(-1)), "maxsplit");
  work.allocate(text.size(),
                sizeof(std::string_view));  // one part per byte is the most there can be
  constexpr bool kLeft = kFrom == Side::kLeft;
  const Value separator = bound.get(0, Value());
  if (separator.is_none()) {
    return make_texts(kLeft ? split_words(text, limit) : split_words_from_right(text, limit),
                      SequenceKind::kList, work);
  }
  const std::string& cut = require_text(separator, "the separator").text;
  if (cut.empty()) fail("empty separator");
  return make_texts(kLeft ? split_at(text, cut, limit) : split_at_from_right(text, cut, limit),
                    SequenceKind::kList, work);
}

Value split_into_lines(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "splitlines", {"keepends"});
  Work& work = interpreter.work();
  const std::string& text = object.as_text()->text;
  work.allocate(text.size(), sizeof(std::string_view));
  std::vector<std::string_view> lines = split_lines(text);
  if (bound.flag(0, false)) {
    for (size_t i = 0; i < lines.size(); ++i) {
      const char* end = i + 1 < lines.size() ? lines[i + 1].data() : text.data() + text.size();
      lines[i] = std::string_view(lines[i].data(), static_cast<size_t>(end - lines[i].data()));
    }
  }
  return make_texts(lines, SequenceKind::kList, work);
}

template <Side kFrom>
Value partition(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "partition", {"sep"}, 1);
  const std::string_view text = object.as_text()->text;
  const std::string& separator = require_text(bound.at(0), "the separator").text;
  if (separator.empty()) fail("empty separator");
  const size_t found = kFrom == Side::kLeft ? text.find(separator) : text.rfind(separator);
  std::vector<std::string_view> parts;
  if (found != std::string_view::npos) {
    parts = {text.substr(0, found), text.substr(found, separator.size()),
             text.substr(found + separator.size())};
  } else if (kFrom == Side::kLeft) {
    parts = {text, "", ""};
  } else {
    parts = {"", "", text};
  }
  return make_texts(parts, SequenceKind::kTuple, interpreter.work());
}

// The part of a text that optional start and end arguments select, and where it starts in code
// points.
struct Window {
  std::string_view text;
  int64_t start;
  bool is_valid;  // false: start lies behind the end, where not even "" is found
};

Window window_of(const std::string& text, const Bound& bound, size_t start_index, Work& work) {
  work.spend_on_bytes(text.size());
  const Value start = bound.get(start_index, Value());
  const Value end = bound.get(start_index + 1, Value());
  if (start.is_none() && end.is_none()) return {text, 0, true};
  const auto length = static_cast<int64_t>(count_code_points(text));
  const auto resolve = [&](const Value& value, int64_t fallback) {
    if (value.is_none()) return fallback;
    const int64_t at = to_count(value, "a position");
    return at < 0 ? std::max<int64_t>(0, at + length) : at;
  };
  const int64_t from = resolve(start, 0);
  const int64_t to = std::min(length, resolve(end, length));
  if (from > to) return {{}, from, false};
  const size_t begin = byte_offset(text, static_cast<size_t>(from));
  const std::string_view rest = std::string_view(text).substr(begin);
  return {rest.substr(0, byte_offset(rest, static_cast<size_t>(to - from))), from, true};
}

template <Side kWhere>
bool has_affix(std::string_view text, const std::string& affix) {
  if (affix.size() > text.size()) return false;
  return (kWhere == Side::kLeft ? text.substr(0, affix.size())
                                : text.substr(text.size() - affix.size())) == affix;
}

template <Side kWhere>
Value tests_affix(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, kWhere == Side::kLeft ? "startswith" : "endswith",
                    {"affix", "start", "end"}, 1);
  const Window window = window_of(object.as_text()->text, bound, 1, interpreter.work());
  const auto matches = [&](const Value& affix) {
    return window.is_valid &&
           has_affix<kWhere>(window.text, require_text(affix, "the first argument").text);
  };
  if (const Sequence* affixes = bound.at(0).as_kind(SequenceKind::kTuple)) {
    return Value::boolean(std::any_of(affixes->items.begin(), affixes->items.end(), matches));
  }
  return Value::boolean(matches(bound.at(0)));
}

template <Side kWhere>
Value remove_affix(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "removeprefix", {"affix"}, 1);
  const Text& text = *object.as_text();
  const std::string& affix = require_text(bound.at(0), "the argument").text;
  if (!has_affix<kWhere>(text.text, affix)) return object;
  const size_t begin = kWhere == Side::kLeft ? affix.size() : 0;
  return make_string_like(text, text.text.substr(begin, text.text.size() - affix.size()),
                          interpreter.work());
}

enum class Missing { kIsMinusOne, kFails };

template <Side kFrom, Missing kMissing>
Value find(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "find", {"sub", "start", "end"}, 1);
  const Window window = window_of(object.as_text()->text, bound, 1, interpreter.work());
  const std::string& part = require_text(bound.at(0), "the text to find").text;
  const size_t found = !window.is_valid       ? std::string_view::npos
                       : kFrom == Side::kLeft ? window.text.find(part)
                                              : window.text.rfind(part);
  if (found == std::string_view::npos) {
    if (kMissing == Missing::kFails) fail("substring not found");
    return Value::integer(-1);
  }
  return Value::integer(window.start +
                        static_cast<int64_t>(count_code_points(window.text.substr(0, found))));
}

Value count(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "count", {"sub", "start", "end"}, 1);
  const Window window = window_of(object.as_text()->text, bound, 1, interpreter.work());
  const std::string& part = require_text(bound.at(0), "the text to count").text;
  if (!window.is_valid) return Value::integer(0);
  if (part.empty()) return Value::integer(static_cast<int64_t>(count_code_points(window.text)) + 1);
  int64_t found = 0;
  for (size_t at = window.text.find(part); at != std::string_view::npos;
       at = window.text.find(part, at + part.size())) {
    ++found;
  }
  return Value::integer(found);
}

Value replace(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "replace", {"old", "new", "count"}, 2);
  Work& work = interpreter.work();
  const Text& text = *object.as_text();
  const int64_t limit = to_count(bound.get(2, Value::integer(-1)), "count");
  const std::string& old = require_text(bound.at(0), "replace() argument 1").text;
  const std::string& with = require_text(bound.at(1), "replace() argument 2").text;
  return make_string_like(text, replace_text(text.text, old, with, limit, work), work);
}

Value join(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "join", {"iterable"}, 1);
  Work& work = interpreter.work();
  const Text& separator = *object.as_text();
  std::string out;
  size_t index = 0;
  for (const Value& item : items_of(bound.at(0), work)) {
    if (separator.is_markup) {  // takes everything, and escapes it
      const Text text = soft_text(item, work);
      const std::string piece = text.is_markup ? text.text : escape_html(text.text);
      work.allocate(piece.size() + separator.text.size());
      if (index++ != 0) out += separator.text;
      out += piece;
      continue;
    }
    if (!item.is_string()) {
      if (item.is_undefined()) fail(item.undefined_message());
      fail(
          fmt::format("sequence item {}: expected str instance, {} found", index, type_name(item)));
    }
    work.allocate(item.as_text()->text.size() + separator.text.size());
    if (index++ != 0) out += separator.text;
    out += item.as_text()->text;
  }
  return make_string_like(separator, std::move(out), work);
}

Value format(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Text& text = *object.as_text();
  return make_string_like(text, format_text(interpreter, text.text, arguments), interpreter.work());
}

template <PadSide kFill>
Value justify(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "center", {"width", "fillchar"}, 1);
  const Text& text = *object.as_text();
  const Value fill = bound.get(1, Value::string(" "));
  const std::string& character = require_text(fill, "the fill character").text;
  if (count_code_points(character) != 1)
    fail("The fill character must be exactly one character long");
  const int64_t width = to_count(bound.at(0), "width");
  return make_string_like(text, pad_text(text.text, width, character, kFill, interpreter.work()),
                          interpreter.work());
}

Value zfill(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "zfill", {"width"}, 1);
  const Text& text = *object.as_text();
  const bool has_sign = !text.text.empty() && (text.text[0] == '-' || text.text[0] == '+');
  const std::string sign = text.text.substr(0, has_sign ? 1 : 0);
  const int64_t width = to_count(bound.at(0), "width");
  const std::string digits = text.text.substr(sign.size());
  const int64_t left = width < 0 ? 0 : width - static_cast<int64_t>(sign.size());
  return make_string_like(text,
                          sign + pad_text(digits, left, "0", PadSide::kLeft, interpreter.work()),
                          interpreter.work());
}

constexpr NamedFunction<MethodFunction> kTextMethods[] = {
    {"strip", strip_method<Side::kBoth>},
    {"lstrip", strip_method<Side::kLeft>},
    {"rstrip", strip_method<Side::kRight>},
    {"split", split<Side::kLeft>},
    {"rsplit", split<Side::kRight>},
    {"splitlines", split_into_lines},
    {"partition", partition<Side::kLeft>},
    {"rpartition", partition<Side::kRight>},
    {"startswith", tests_affix<Side::kLeft>},
    {"endswith", tests_affix<Side::kRight>},
    {"removeprefix", remove_affix<Side::kLeft>},
    {"removesuffix", remove_affix<Side::kRight>},
    {"find", find<Side::kLeft, Missing::kIsMinusOne>},
    {"rfind", find<Side::kRight, Missing::kIsMinusOne>},
    {"index", find<Side::kLeft, Missing::kFails>},
    {"rindex", find<Side::kRight, Missing::kFails>},
    {"count", count},
    {"replace", replace},
    {"join", join},
    {"format", format},
    {"center", justify<PadSide::kBoth>},
    {"ljust", justify<PadSide::kRight>},
    {"rjust", justify<PadSide::kLeft>},
    {"zfill", zfill},
};

}  // namespace

MethodFunction find_text_method(std::string_view name) {
  const MethodFunction method = find_named(kTextMethods, name);
  return method != nullptr ? method : find_character_method(name);
}

}  // namespace tandem::jinja
