// str.format(): finds the fields of a text and what they name; format.cc writes the values.
#include <fmt/format.h>

#include "jinja/format.h"
#include "jinja/interpreter.h"
#include "jinja/literal.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

struct Field {
  std::string_view name;   // "0.role[key]"; empty: the next argument
  char conversion = '\0';  // of !s, !r, !a
  std::string_view spec;   // may hold fields itself
};

// The field behind the brace text[at - 1]; moves `at` past its end.
Field take_field(std::string_view text, size_t& at) {
  Field field;
  const size_t begin = at;
  bool in_brackets = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '{') fail("unexpected '{' in field name");
    if (c == '[') in_brackets = true;
    if (c == ']') in_brackets = false;
    if (!in_brackets && (c == '}' || c == ':' || c == '!')) break;
  }
  if (at == text.size()) {
    fail(at == begin ? "Single '{' encountered in format string"
                     : "expected '}' before end of string");
  }
  field.name = text.substr(begin, at - begin);
  if (text[at] == '!') {
    field.conversion = at + 1 < text.size() ? text[at + 1] : '\0';
    at += 2;
    if (at >= text.size()) fail("unmatched '{' in format spec");
    if (text[at] != ':' && text[at] != '}') fail("expected ':' after conversion specifier");
  }
  if (text[at] == ':') {
    const size_t spec = ++at;
    for (int open = 1; at < text.size(); ++at) {
      if (text[at] == '{') ++open;
      if (text[at] == '}' && --open == 0) break;
    }
    if (at >= text.size()) fail("unmatched '{' in format spec");
    field.spec = text.substr(spec, at - spec);
  }
  ++at;
  return field;
}

class FieldFormatter {
 public:
  FieldFormatter(Interpreter& interpreter, const Arguments& arguments)
      : interpreter_(interpreter), arguments_(arguments) {}

  // `levels`: how much deeper fields may stand inside the specs of fields.
  std::string expand(std::string_view text, int levels) {
    if (levels < 0) fail("Max string recursion exceeded");
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const char c = text[at++];
      const bool is_brace = c == '{' || c == '}';
      if (!is_brace || (at < text.size() && text[at] == c)) {
        out += c;
        if (is_brace) ++at;
        continue;
      }
      if (c == '}') fail("Single '}' encountered in format string");
      const Field field = take_field(text, at);
      const std::string piece = written(field, levels);
      work().allocate(piece.size());
      out += piece;
    }
    return out;
  }

 private:
  enum class Numbering { kOpen, kAutomatic, kManual };

  Work& work() { return interpreter_.work(); }

  std::string written(const Field& field, int levels) {
    Value value = value_of(field.name);
    if (field.conversion == 's') {
      value = make_string(to_text(value, work()), work());
    } else if (field.conversion == 'r') {
      value = make_string(to_repr(value, work()), work());
    } else if (field.conversion == 'a') {
      value = make_string(to_ascii(to_repr(value, work())), work());
    } else if (field.conversion != '\0') {
      fail(fmt::format("Unknown conversion specifier '{}'", field.conversion));
    }
    return format_value(value, expand(field.spec, levels - 1), work());
  }

  Value value_of(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, end));
    std::string_view rest = name.substr(end);
    while (!rest.empty()) {
      const bool is_item = rest.front() == '[';
      if (!is_item && rest.front() != '.') {
        fail("Only '.' or '[' may follow ']' in format field specifier");
      }
      const size_t stop =
          is_item ? rest.find(']') : std::min(rest.find_first_of(".[", 1), rest.size());
      if (stop == std::string_view::npos) fail("Missing ']' in format string");
      const std::string_view key = rest.substr(1, stop - 1);
      if (key.empty()) fail("Empty attribute in format string");
      value = is_item ? item(value, key) : interpreter_.attribute(value, key);
      rest.remove_prefix(is_item ? stop + 1 : stop);
    }
    return value;
  }

  static bool is_number(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  }

  Value item(const Value& object, std::string_view key) {
    const std::optional<Int> index = is_number(key) ? parse_integer(key, 10) : std::nullopt;
    return interpreter_.item(object,
                             index ? Value::integer(*index) : Value::string(std::string(key)));
  }

  Value argument(std::string_view name) {
    if (name.empty() || is_number(name)) {
      const Numbering wanted = name.empty() ? Numbering::kAutomatic : Numbering::kManual;
      if (numbering_ != Numbering::kOpen && numbering_ != wanted) {
        fail("a format cannot mix numbered fields with '{}'");
      }
      numbering_ = wanted;
      const Int index =
          name.empty() ? static_cast<Int>(automatic_++) : parse_integer(name, 10).value_or(-1);
      if (index >= 0 && index < static_cast<Int>(arguments_.positional.size())) {
        return arguments_.positional[static_cast<size_t>(index)];
      }
      fail(fmt::format("the format names '{}', which is not given", name));
    }
    for (const auto& [given, value] : arguments_.named) {
      if (given == name) return value;
    }
    fail(fmt::format("the format names '{}', which is not given", name));
  }

  Interpreter& interpreter_;
  const Arguments& arguments_;
  Numbering numbering_ = Numbering::kOpen;
  size_t automatic_ = 0;
};

}  // namespace

std::string format_text(Interpreter& interpreter, std::string_view text,
                        const Arguments& arguments) {
  constexpr int kLevels = 2;  // as Python's string.Formatter
  return FieldFormatter(interpreter, arguments).expand(text, kLevels);
}

}  // namespace tandem::jinja
