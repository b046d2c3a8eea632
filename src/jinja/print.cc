#include "jinja/print.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

class Printer {
 public:
  Printer(std::string& out, Work& work) : out_(out), work_(work) {}

  void print(const Value& value) {
    if (const Text* text = value.as_text()) {
      put(text->is_markup ? "Markup(" + python_quoted(text->text) + ")"
                          : python_quoted(text->text));
    } else if (const Sequence* sequence = value.as_sequence()) {
      print_sequence(*sequence);
    } else if (const Dict* dict = value.as_dict()) {
      print_dict(*dict);
    } else if (const Object* object = value.as_object()) {
      print_object(*object);
    } else {
      print_scalar(value);
    }
  }

 private:
  void put(std::string_view text) {
    work_.allocate(text.size());
    work_.spend_on_bytes(text.size());
    out_ += text;
  }

  void print_scalar(const Value& value) {
    if (value.is_none()) {
      put("None");
    } else if (value.is_undefined()) {
      put("Undefined");
    } else if (const bool* boolean = value.as_bool()) {
      put(*boolean ? "True" : "False");
    } else if (const auto integer = value.as_integer()) {
      put(integer_text(*integer));
    } else if (const double* real = value.as_real()) {
      put(real_text(*real));
    } else if (const Range* range = value.as_range()) {
      put(fmt::format("range({}, {}", range->start, range->stop));
      put(range->step == 1 ? ")" : fmt::format(", {})", range->step));
    } else if (const Callable* callable = value.as_callable()) {
      put(fmt::format("<{} '{}'>", callable->type_name, callable->name));
    }
  }

  void print_items(const std::vector<Value>& items) {
    bool first = true;
    for (const Value& item : items) {
      if (!first) put(", ");
      first = false;
      print(item);
    }
  }

  void print_sequence(const Sequence& sequence) {
    switch (sequence.kind) {
      case SequenceKind::kGenerator:
        put("<generator object>");
        return;
      case SequenceKind::kTuple:
      case SequenceKind::kGroup:
        put("(");
        print_items(sequence.items);
        put(sequence.items.size() == 1 ? ",)" : ")");
        return;
      case SequenceKind::kList:
        put("[");
        print_items(sequence.items);
        put("]");
        return;
      case SequenceKind::kKeys:
      case SequenceKind::kValues:
      case SequenceKind::kItems:
        put(type_name_of(sequence.kind));
        put("([");
        print_items(sequence.items);
        put("])");
        return;
    }
  }

  static std::string_view type_name_of(SequenceKind kind) {
    if (kind == SequenceKind::kKeys) return "dict_keys";
    return kind == SequenceKind::kValues ? "dict_values" : "dict_items";
  }

  void print_dict(const Dict& dict) {
    put("{");
    bool first = true;
    for (const Dict::Entry& entry : dict.entries()) {
      if (!first) put(", ");
      first = false;
      print(entry.key);
      put(": ");
      print(entry.value);
    }
    put("}");
  }

  // Namespaces may contain each other and themselves, so their depth is counted here.
  void print_object(const Object& object) {
    if (!object.is_namespace) {
      put(fmt::format("<{}>", object.type_name));
      return;
    }
    if (++object_depth_ > kMaxNestedObjects)
      fail("maximum recursion depth exceeded in a namespace");
    put("<Namespace {");
    bool first = true;
    for (const auto& [name, value] : object.attributes) {
      if (!first) put(", ");
      first = false;
      put(python_quoted(name));
      put(": ");
      print(value);
    }
    put("}>");
    --object_depth_;
  }

  static constexpr int kMaxNestedObjects = 8;  // each may hold values nested kMaxValueDepth deep
  std::string& out_;
  Work& work_;
  int object_depth_ = 0;
};

std::string code_escape(uint32_t code) {
  if (code < 0x100) return fmt::format("\\x{:02x}", code);
  return code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
}

}  // namespace

std::string to_text(const Value& value, Work& work) {
  if (const Text* text = value.as_text()) return text->text;
  if (value.is_undefined()) return {};
  return to_repr(value, work);
}

std::string to_repr(const Value& value, Work& work) {
  std::string out;
  Printer(out, work).print(value);
  return out;
}

std::string integer_text(Int value) { return fmt::format("{}", value); }

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto result =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view shortest(buffer, static_cast<size_t>(result.ptr - buffer));
  const size_t e = shortest.find('e');
  int exponent = 0;
  const size_t exponent_at = e + (shortest[e + 1] == '+' ? 2 : 1);
  std::from_chars(shortest.data() + exponent_at, shortest.data() + shortest.size(), exponent);
  const bool negative = shortest.front() == '-';
  std::string digits;
  for (const char c : shortest.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out = negative ? "-" : "";
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1)
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  const auto whole = static_cast<size_t>(exponent + 1);
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string to_ascii(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_at(text, at);
    if (point.code < 0x80) {
      out += text[at];
    } else {
      out += code_escape(static_cast<uint32_t>(point.code));
    }
    at += point.bytes;
  }
  return out;
}

std::string python_quoted(std::string_view text) {
  const bool use_double =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = use_double ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_at(text, at);
    const auto code = static_cast<uint32_t>(point.code);
    if (code == '\\' || code == static_cast<uint32_t>(quote)) {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (code == '\t') {
      out += "\\t";
    } else if (is_printable(point.code)) {
      out += text.substr(at, point.bytes);
    } else {
      out += code_escape(code);
    }
    at += point.bytes;
  }
  return out + quote;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '\'') {
      out += "&#39;";
    } else if (c == '"') {
      out += "&#34;";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace tandem::jinja
