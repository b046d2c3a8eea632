// Filters that make or change text.
#include <fmt/format.h>

#include <algorithm>

#include "jinja/builtins.h"
#include "jinja/format.h"
#include "jinja/json.h"
#include "jinja/lines.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

template <std::string (*kChange)(std::string_view)>
Value change_text(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "the filter", {});
  const Text text = soft_text(input, interpreter.work());
  return make_string_like(text, kChange(text.text), interpreter.work());
}

// The title filter starts words after white space and opening brackets, unlike str.title().
std::string title_words(std::string_view text) {
  constexpr std::string_view kStarters = "-({[<";
  std::string out;
  size_t begin = 0;
  bool in_separator = false;
  const auto flush = [&](size_t end) {
    if (end > begin) {
      const size_t rest = begin + decode_at(text, begin).bytes;
      out += to_upper(text.substr(begin, rest - begin)) + to_lower(text.substr(rest, end - rest));
    }
    begin = end;
  };
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_at(text, at);
    const bool separator =
        is_space(point.code) ||
        (point.code < 0x80 && kStarters.find(static_cast<char>(point.code)) != std::string::npos);
    if (separator != in_separator) flush(at);
    in_separator = separator;
    at += point.bytes;
  }
  flush(text.size());
  return out;
}

Value trim(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "trim", {"chars"});
  const Text text = soft_text(input, interpreter.work());
  const Value characters = bound.get(0, Value());
  const std::string_view stripped =
      characters.is_none()
          ? strip(text.text, Side::kBoth)
          : strip_characters(text.text, require_text(characters, "chars").text, Side::kBoth);
  return make_string_like(text, std::string(stripped), interpreter.work());
}

Value replace(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  Work& work = interpreter.work();
  const Bound bound(arguments, "replace", {"old", "new", "count"}, 2);
  const Value count = bound.get(2, Value());
  const int64_t limit = count.is_none() ? -1 : to_count(count, "count");
  return make_string(replace_text(to_text(input, work), to_text(bound.at(0), work),
                                  to_text(bound.at(1), work), limit, work),
                     work);
}

Value indent(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  Work& work = interpreter.work();
  const Bound bound(arguments, "indent", {"width", "first", "blank"});
  const Text& text = require_text(input, "the input of indent");
  const Value width = bound.get(0, Value::integer(4));
  std::string indentation;
  if (width.is_string()) {
    indentation = width.as_text()->text;
  } else {
    const auto spaces = static_cast<size_t>(std::max<int64_t>(0, to_count(width, "width")));
    work.allocate(spaces);
    indentation.assign(spaces, ' ');
  }
  const bool blank = bound.flag(2, false);
  const std::string ended = text.text + "\n";  // so that a line end at the end counts
  const std::vector<std::string_view> lines = split_lines(ended);
  work.allocate(lines.size() + 1, indentation.size() + sizeof(std::string_view));
  work.allocate(ended.size());
  std::string out = bound.flag(1, false) ? indentation : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i != 0) out += '\n';
    if (i != 0 && (blank || !lines[i].empty())) out += indentation;
    out += lines[i];
  }
  return make_string_like(text, std::move(out), work);
}

Value join(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  Work& work = interpreter.work();
  const Bound bound(arguments, "join", {"d", "attribute"});
  const std::string separator = to_text(bound.get(0, Value::string("")), work);
  const Value attribute = bound.get(1, Value());
  std::string out;
  bool first = true;
  for (const Value& item : items_of(input, work)) {
    const std::string piece = to_text(
        attribute.is_none() ? item : attribute_of(interpreter, item, attribute, nullptr), work);
    work.allocate(piece.size() + separator.size());
    if (!first) out += separator;
    first = false;
    out += piece;
  }
  return make_string(std::move(out), work);
}

Value escape(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "escape", {});
  if (input.is_string() && input.as_text()->is_markup) return input;
  std::string text = escape_html(to_text(input, interpreter.work()));
  interpreter.work().allocate(text.size());
  return Value::markup(std::move(text));
}

Value force_escape(Interpreter& interpreter, const Value& input, const Arguments&) {
  std::string text = escape_html(to_text(input, interpreter.work()));
  interpreter.work().allocate(text.size());
  return Value::markup(std::move(text));
}

Value mark_safe(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "safe", {});
  std::string text = to_text(input, interpreter.work());
  interpreter.work().allocate(text.size());
  return Value::markup(std::move(text));
}

Value to_string(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "string", {});
  return input.is_string() ? input
                           : make_string(to_text(input, interpreter.work()), interpreter.work());
}

Value format(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  Work& work = interpreter.work();
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  const Text text = soft_text(input, work);
  if (arguments.named.empty()) {
    return format_percent(text, make_sequence(SequenceKind::kTuple, arguments.positional, work),
                          work);
  }
  Dict dict;
  for (const auto& [name, value] : arguments.named) dict.set(Value::string(name), value, work);
  return format_percent(text, make_dict(std::move(dict)), work);
}

Value center(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  Work& work = interpreter.work();
  const Bound bound(arguments, "center", {"width"});
  const Text text = soft_text(input, work);
  const int64_t width = to_count(bound.get(0, Value::integer(80)), "width");
  return make_string_like(text, pad_text(text.text, width, " ", PadSide::kBoth, work), work);
}

Value truncate(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  Work& work = interpreter.work();
  const Bound bound(arguments, "truncate", {"length", "killwords", "end", "leeway"});
  const int64_t length = to_count(bound.get(0, Value::integer(255)), "length");
  const Text end = soft_text(bound.get(2, Value::string("...")), work);
  const Value leeway_value = bound.get(3, Value());
  const int64_t leeway = leeway_value.is_none() ? 5 : to_count(leeway_value, "leeway");
  const auto end_length = static_cast<int64_t>(count_code_points(end.text));
  if (length < end_length) fail(fmt::format("expected length >= {}, got {}", end_length, length));
  if (leeway < 0) fail(fmt::format("expected leeway >= 0, got {}", leeway));
  if (length_of(input, work) - leeway <= length) return input;
  const Text& text = require_text(input, "what truncate cuts");
  std::string kept =
      text.text.substr(0, byte_offset(text.text, static_cast<size_t>(length - end_length)));
  if (!bound.flag(1, false)) {
    if (const size_t space = kept.rfind(' '); space != std::string::npos) kept.resize(space);
  }
  return make_string_like(text, kept + end.text, work);
}

Value count_words(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(arguments, "wordcount", {});
  const std::string text = to_text(input, interpreter.work());
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_at(text, at);
    const bool word = point.code == '_' || is_alphanumeric(point.code);
    if (word && !inside) ++words;
    inside = word;
    at += point.bytes;
  }
  return Value::integer(words);
}

std::string json_indent(const Value& value, Work& work) {
  if (value.is_string()) return value.as_text()->text;
  const int64_t spaces = std::max<int64_t>(0, to_count(value, "indent"));
  work.allocate(static_cast<size_t>(spaces));
  return std::string(static_cast<size_t>(spaces), ' ');
}

// Not jinja2's own, which makes HTML, but the one that chat templates get: json.dumps, plain text.
Value tojson(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  Work& work = interpreter.work();
  const Bound bound(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonFormat format;
  format.ascii_only = bound.flag(0, false);
  format.sort_keys = bound.flag(3, false);
  if (const Value indentation = bound.get(1, Value()); !indentation.is_none()) {
    format.indent = json_indent(indentation, work);
    // Not `= ","`: gcc 12 warns of an overlap when a literal is assigned here.
    format.item_separator.assign(1, ',');
  }
  if (const Value separators = bound.get(2, Value()); !separators.is_none()) {
    const std::vector<Value> both = items_of(separators, work);
    if (both.size() != 2) fail("separators of tojson must be two texts");
    format.item_separator = require_text(both[0], "a separator").text;
    format.key_separator = require_text(both[1], "a separator").text;
  }
  return make_string(to_json(input, format, work), work);
}

constexpr NamedFunction<FilterFunction> kTextFilters[] = {
    {"trim", trim},
    {"tojson", tojson},
    {"join", join},
    {"replace", replace},
    {"indent", indent},
    {"upper", change_text<to_upper>},
    {"lower", change_text<to_lower>},
    {"capitalize", change_text<to_capitalized>},
    {"title", change_text<title_words>},
    {"string", to_string},
    {"escape", escape},
    {"e", escape},
    {"forceescape", force_escape},
    {"safe", mark_safe},
    {"format", format},
    {"center", center},
    {"truncate", truncate},
    {"wordcount", count_words},
};

}  // namespace

FilterFunction find_text_filter(std::string_view name) { return find_named(kTextFilters, name); }

}  // namespace tandem::jinja
