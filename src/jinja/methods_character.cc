// Methods of str that ask what its characters are or change their case.
#include "jinja/builtins.h"
#include "jinja/operators.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

template <std::string (*kChange)(std::string_view)>
Value change_method(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "the method", {});
  const Text& text = *object.as_text();
  return make_string_like(text, kChange(text.text), interpreter.work());
}

// True when all characters are of the class; without any, `kOfNothing`.
template <bool (*kClass)(char32_t), bool kOfNothing = false>
Value all_in_class(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "the method", {});
  const std::string& text = object.as_text()->text;
  interpreter.work().spend_on_bytes(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_at(text, at);
    if (!kClass(point.code)) return Value::boolean(false);
    at += point.bytes;
  }
  return Value::boolean(!text.empty() || kOfNothing);
}

bool is_ascii(char32_t code) { return code < 0x80; }

Value is_identifier(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "isidentifier", {});
  const std::string& text = object.as_text()->text;
  interpreter.work().spend_on_bytes(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_at(text, at);
    if (!(at == 0 ? begins_name(point.code) : continues_name(point.code))) {
      return Value::boolean(false);
    }
    at += point.bytes;
  }
  return Value::boolean(!text.empty());
}

template <const char* kTest>
Value case_test(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  return Value::boolean(interpreter.test(kTest, object, arguments));
}
constexpr char kUpper[] = "upper";
constexpr char kLower[] = "lower";

// Capital letters begin words, small ones continue them.
Value is_title(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "istitle", {});
  const std::string& text = object.as_text()->text;
  interpreter.work().spend_on_bytes(text.size());
  bool any = false;
  bool inside_word = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_at(text, at);
    at += point.bytes;
    const bool cased = is_cased(point.code);
    if (cased && is_lower(point.code) != inside_word) return Value::boolean(false);
    any = any || cased;
    inside_word = cased;
  }
  return Value::boolean(any);
}

Value expand_tabs(Interpreter& interpreter, const Value& object, const Arguments& arguments) {
  const Bound bound(arguments, "expandtabs", {"tabsize"});
  const Text& text = *object.as_text();
  Work& work = interpreter.work();
  work.spend_on_bytes(text.text.size());
  const int64_t size = to_count(bound.get(0, Value::integer(8)), "tabsize");
  std::string out;
  int64_t column = 0;
  for (size_t at = 0; at < text.text.size();) {
    const size_t bytes = decode_at(text.text, at).bytes;
    const char c = text.text[at];
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      work.allocate(static_cast<size_t>(spaces));
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
    } else {
      out.append(text.text, at, bytes);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    at += bytes;
  }
  return make_string_like(text, std::move(out), work);
}

constexpr NamedFunction<MethodFunction> kMethods[] = {
    {"upper", change_method<to_upper>},
    {"lower", change_method<to_lower>},
    {"casefold", change_method<to_folded>},
    {"swapcase", change_method<to_swapped>},
    {"title", change_method<to_title>},
    {"capitalize", change_method<to_capitalized>},
    {"expandtabs", expand_tabs},
    {"isspace", all_in_class<is_space>},
    {"isalpha", all_in_class<is_alpha>},
    {"isalnum", all_in_class<is_alphanumeric>},
    {"isdecimal", all_in_class<is_decimal>},
    {"isdigit", all_in_class<is_digit>},
    {"isnumeric", all_in_class<is_numeric>},
    {"isascii", all_in_class<is_ascii, true>},
    {"isprintable", all_in_class<is_printable, true>},
    {"isidentifier", is_identifier},
    {"istitle", is_title},
    {"isupper", case_test<kUpper>},
    {"islower", case_test<kLower>},
};

}  // namespace

MethodFunction find_character_method(std::string_view name) { return find_named(kMethods, name); }

}  // namespace tandem::jinja
