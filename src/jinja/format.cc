#include "jinja/format.h"

#include <fmt/format.h>

#include <cmath>

#include "base/utf8.h"
#include "jinja/literal.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

constexpr int kMaxPrecision = 1000;

struct FormatSpec {
  std::string fill = " ";
  char align = '\0';  // '<', '>', '^', '=' or none given
  char sign = '-';
  bool has_sign = false;
  char grouping = '\0';
  bool alternate = false;
  bool zero = false;  // a 0 before the width
  int64_t width = 0;
  int precision = -1;
  char type = '\0';
};

// Digits at text[at...], which moves past them; fails on more than ten million.
int64_t take_number(std::string_view text, size_t& at) {
  int64_t number = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    number = number * 10 + (text[at++] - '0');
    if (number > 10'000'000) fail("a width in a format is too large");
  }
  return number;
}

int take_precision(std::string_view text, size_t& at) {
  const int64_t precision = take_number(text, at);
  if (precision > kMaxPrecision) fail("a precision in a format is too large");
  return static_cast<int>(precision);
}

bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

FormatSpec parse_spec(std::string_view text) {
  FormatSpec spec;
  size_t at = 0;
  const auto has = [&](char c) { return at < text.size() && text[at] == c; };
  const size_t first = text.empty() ? 0 : decode_at(text, 0).bytes;
  if (first > 0 && text.size() > first && is_align(text[first])) {
    spec.fill = std::string(text.substr(0, first));
    spec.align = text[first];
    at = first + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[at++];
  }
  const bool has_fill = at > 1;
  if (has('+') || has('-') || has(' ')) {
    spec.has_sign = true;
    spec.sign = text[at++];
  }
  if (has('#')) {
    spec.alternate = true;
    ++at;
  }
  if (has('0')) {
    ++at;
    spec.zero = true;
    if (!has_fill) spec.fill = "0";
  }
  spec.width = take_number(text, at);
  if (has(',') || has('_')) spec.grouping = text[at++];
  if (has('.')) {
    ++at;
    spec.precision = take_precision(text, at);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) fail(fmt::format("Invalid format specifier '{}'", text));
  return spec;
}

std::string repeat_fill(const std::string& fill, int64_t times) {
  std::string out;
  for (int64_t i = 0; i < times; ++i) out += fill;
  return out;
}

// `prefix` is the sign, which '=' alignment leaves at the front.
std::string pad(const std::string& prefix, const std::string& body, const FormatSpec& spec,
                char fallback, Work& work) {
  work.allocate(static_cast<size_t>(spec.width) * spec.fill.size() + body.size());
  const int64_t missing =
      spec.width - static_cast<int64_t>(count_code_points(prefix) + count_code_points(body));
  if (missing <= 0) return prefix + body;
  switch (spec.align == '\0' ? fallback : spec.align) {
    case '<':
      return prefix + body + repeat_fill(spec.fill, missing);
    case '^':
      return repeat_fill(spec.fill, missing / 2) + prefix + body +
             repeat_fill(spec.fill, missing - missing / 2);
    case '=':
      return prefix + repeat_fill(spec.fill, missing) + body;
    default:
      return repeat_fill(spec.fill, missing) + prefix + body;
  }
}

std::string group_digits(const std::string& digits, char separator) {
  size_t whole = digits.find_first_not_of("0123456789");
  if (whole == std::string::npos) whole = digits.size();
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && i < whole && (whole - i) % 3 == 0) out += separator;
    out += digits[i];
  }
  return out;
}

std::string real_digits(double magnitude, const FormatSpec& spec) {
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  switch (spec.type) {
    case 'f':
      return fmt::format("{:.{}f}", magnitude, precision);
    case 'F':
      return fmt::format("{:.{}F}", magnitude, precision);
    case 'e':
      return fmt::format("{:.{}e}", magnitude, precision);
    case 'E':
      return fmt::format("{:.{}E}", magnitude, precision);
    case 'g':
    case 'n':
      return fmt::format("{:.{}g}", magnitude, precision == 0 ? 1 : precision);
    case 'G':
      return fmt::format("{:.{}G}", magnitude, precision == 0 ? 1 : precision);
    case '%':
      return fmt::format("{:.{}f}%", magnitude * 100, precision);
    default:
      break;
  }
  if (spec.type != '\0')
    fail(fmt::format("Unknown format code '{}' for object of type 'float'", spec.type));
  if (spec.precision < 0) return real_text(magnitude);
  const std::string digits = fmt::format("{:.{}g}", magnitude, precision == 0 ? 1 : precision);
  return digits.find_first_not_of("0123456789") == std::string::npos ? digits + ".0" : digits;
}

std::string integer_digits(Int value, const FormatSpec& spec) {
  const auto magnitude =
      value < 0 ? -static_cast<UnsignedInt>(value) : static_cast<UnsignedInt>(value);
  switch (spec.type) {
    case '\0':
    case 'd':
    case 'n':
      return fmt::format("{}", magnitude);
    case 'x':
      return (spec.alternate ? "0x" : "") + fmt::format("{:x}", magnitude);
    case 'X':
      return (spec.alternate ? "0X" : "") + fmt::format("{:X}", magnitude);
    case 'o':
      return (spec.alternate ? "0o" : "") + fmt::format("{:o}", magnitude);
    case 'b':
      return (spec.alternate ? "0b" : "") + fmt::format("{:b}", magnitude);
    default:
      fail(fmt::format("Unknown format code '{}' for object of type 'int'", spec.type));
  }
}

std::string sign_of(bool negative, char rule) {
  if (negative) return "-";
  return rule == '-' ? "" : std::string(1, rule);
}

bool is_integer_type(char type) {
  constexpr std::string_view kRealTypes = "fFeEgG%";
  return kRealTypes.find(type) == std::string_view::npos;
}

std::string format_number(const Value& value, const FormatSpec& spec, Work& work) {
  const auto integer = value.as_integer();
  std::string digits;
  bool negative = false;
  if (integer && is_integer_type(spec.type)) {
    digits = integer_digits(*integer, spec);
    negative = *integer < 0;
  } else {
    const double number = *value.as_number();
    negative = std::signbit(number) && !std::isnan(number);
    digits = real_digits(std::fabs(number), spec);
  }
  if (spec.grouping != '\0') digits = group_digits(digits, spec.grouping);
  return pad(sign_of(negative, spec.sign), digits, spec, spec.zero ? '=' : '>', work);
}

std::string format_string(std::string_view text, const FormatSpec& spec, Work& work) {
  if (spec.type != '\0' && spec.type != 's') {
    fail(fmt::format("Unknown format code '{}' for object of type 'str'", spec.type));
  }
  if (spec.has_sign) fail("Sign not allowed in string format specifier");
  if (spec.alternate) fail("Alternate form (#) not allowed in string format specifier");
  if (spec.align == '=') fail("'=' alignment not allowed in string format specifier");
  if (spec.grouping != '\0') fail(fmt::format("Cannot specify '{}' with 's'.", spec.grouping));
  if (spec.precision >= 0)
    text = text.substr(0, byte_offset(text, static_cast<size_t>(spec.precision)));
  return pad("", std::string(text), spec, '<', work);
}

// One value after another of what stands right of `%`.
class PercentValues {
 public:
  explicit PercentValues(const Value& values)
      : values_(values), tuple_(values.as_kind(SequenceKind::kTuple)) {
    if (tuple_ == nullptr) tuple_ = values.as_kind(SequenceKind::kGroup);
  }

  Value next() {
    const size_t count = tuple_ == nullptr ? 1 : tuple_->items.size();
    if (used_ >= count) fail("not enough arguments for format string");
    ++used_;
    return tuple_ == nullptr ? values_ : tuple_->items[used_ - 1];
  }

  Value named(std::string_view key) {
    const Dict* dict = values_.as_dict();
    if (dict == nullptr) fail("format requires a mapping");
    const Value* value = dict->find(key);
    if (value == nullptr) fail(fmt::format("the format names '{}', which is not given", key));
    used_ = 1;
    return *value;
  }

  void check_all_used() const {
    // What has items counts as a mapping, of which not all need to be used.
    const bool has_items = values_.is_dict() || values_.is_undefined() ||
                           values_.as_range() != nullptr ||
                           values_.as_kind(SequenceKind::kList) != nullptr;
    const bool all = tuple_ != nullptr ? used_ >= tuple_->items.size() : used_ > 0 || has_items;
    if (!all) fail("not all arguments converted during string formatting");
  }

 private:
  const Value& values_;
  const Sequence* tuple_;
  size_t used_ = 0;
};

std::string format_percent_value(const Value& value, FormatSpec spec, Work& work) {
  switch (spec.type) {
    case 's':
    case 'r':
    case 'a': {
      std::string text = spec.type == 's' ? to_text(value, work) : to_repr(value, work);
      if (spec.type == 'a') text = to_ascii(text);
      spec.type = 's';
      spec.alternate = false;
      if (spec.align == '\0' || spec.align == '=') spec.align = '>';
      if (spec.fill == "0") spec.fill = " ";
      return format_string(text, spec, work);
    }
    case 'c': {
      spec.type = 's';
      if (spec.align == '\0') spec.align = '>';
      if (const Text* text = value.as_text()) {
        if (count_code_points(text->text) != 1) fail("%c requires int or char");
        return format_string(text->text, spec, work);
      }
      const int64_t code = to_count(value, "%c");
      if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        fail("%c arg not in range(0x110000)");
      std::string text;
      append_utf8(static_cast<char32_t>(code), text);
      return format_string(text, spec, work);
    }
    case 'i':
    case 'u':
      spec.type = 'd';
      break;
    default:
      break;
  }
  const auto number = value.as_number();
  if (!number) {
    if (value.is_undefined()) fail(value.undefined_message());
    fail(fmt::format("%{} format: a real number is required, not {}", spec.type, type_name(value)));
  }
  if (spec.type == 'd' && value.as_real() != nullptr) {
    if (!(std::fabs(*number) < 1e38))
      fail("cannot convert float infinity, NaN or a huge number to integer");
    return format_number(Value::integer(static_cast<Int>(*number)), spec, work);
  }
  return format_number(value, spec, work);
}

}  // namespace

std::string format_value(const Value& value, std::string_view spec_text, Work& work) {
  if (spec_text.empty()) return to_text(value, work);
  const FormatSpec spec = parse_spec(spec_text);
  if (value.as_integer() && is_integer_type(spec.type) && spec.precision >= 0) {
    fail("Precision not allowed in integer format specifier");
  }
  if (value.as_number()) return format_number(value, spec, work);
  if (value.is_string()) return format_string(value.as_text()->text, spec, work);
  fail(fmt::format("unsupported format string passed to {}.__format__", type_name(value)));
}

Value format_percent(const Text& format, const Value& values, Work& work) {
  const std::string& text = format.text;
  PercentValues source(values);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (++i < text.size() && text[i] == '%') {
      out += '%';
      continue;
    }
    std::optional<Value> named;
    if (i < text.size() && text[i] == '(') {
      const size_t close = text.find(')', i);
      if (close == std::string::npos) fail("incomplete format key");
      named = source.named(std::string_view(text).substr(i + 1, close - i - 1));
      i = close + 1;
    }
    FormatSpec spec;
    for (; i < text.size() && std::string_view("-+ #0").find(text[i]) != std::string_view::npos;
         ++i) {
      if (text[i] == '-') spec.align = '<';
      if (text[i] == '+' || (text[i] == ' ' && spec.sign != '+')) spec.sign = text[i];
      if (text[i] == '#') spec.alternate = true;
      if (text[i] == '0' && spec.align != '<') {
        spec.fill = "0";
        spec.align = '=';
      }
    }
    if (spec.align == '<') spec.fill = " ";
    spec.width = take_number(text, i);
    if (i < text.size() && text[i] == '.') {
      ++i;
      spec.precision = take_precision(text, i);
    }
    if (i >= text.size()) fail("incomplete format");
    spec.type = text[i];
    if (std::string_view("srdiufFeEgGxXoca").find(spec.type) == std::string_view::npos) {
      fail(fmt::format("unsupported format character '{}'", spec.type));
    }
    const Value value = named ? *named : source.next();
    const std::string piece = format_percent_value(value, spec, work);
    work.allocate(piece.size());
    out += piece;
  }
  source.check_all_used();
  return make_string_like(format, std::move(out), work);
}

}  // namespace tandem::jinja
