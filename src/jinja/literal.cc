#include "jinja/literal.h"

#include <cstdlib>
#include <limits>

#include "base/utf8.h"
#include "jinja/unicode.h"

namespace tandem::jinja {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

// Bytes of digits of `base` with single underscores between them, from `at` on.
size_t scan_digits(std::string_view text, size_t at, int base) {
  size_t end = at;
  while (end < text.size()) {
    if (digit_value(text[end]) < base) {
      ++end;
    } else if (text[end] == '_' && end > at && end + 1 < text.size() &&
               digit_value(text[end + 1]) < base) {
      ++end;
    } else {
      break;
    }
  }
  return end - at;
}

std::string without_underscores(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '_') out += c;
  }
  return out;
}

std::optional<Int> digits_value(std::string_view digits, int base) {
  Int value = 0;
  for (const char c : digits) {
    if (c == '_') continue;
    if (__builtin_mul_overflow(value, static_cast<Int>(base), &value) ||
        __builtin_add_overflow(value, static_cast<Int>(digit_value(c)), &value)) {
      return std::nullopt;
    }
  }
  return value;
}

int prefix_base(std::string_view text) {
  if (text.size() < 3 || text[0] != '0') return 10;
  const char c = static_cast<char>(text[1] | 0x20);
  const int base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
  return base != 10 && digit_value(text[2]) < base ? base : 10;
}

// Bytes of `.5`, `e-3` or `.5e-3` at the start of `text`; 0 when there is none.
size_t scan_fraction(std::string_view text) {
  size_t end = 0;
  if (text.size() > 1 && text[0] == '.') {
    const size_t digits = scan_digits(text, 1, 10);
    if (digits > 0) end = 1 + digits;
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    size_t exponent = end + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    const size_t digits = scan_digits(text, exponent, 10);
    if (digits > 0) end = exponent + digits;
  }
  return end;
}

bool is_octal(char c) { return c >= '0' && c <= '7'; }

// Appends the code point of `digits` characters of base `base`; false when broken.
bool append_code(std::string& out, std::string_view digits, size_t want, int base) {
  if (digits.size() < want) return false;
  uint32_t code = 0;
  for (const char c : digits.substr(0, want)) {
    if (digit_value(c) >= base) return false;
    code = code * static_cast<uint32_t>(base) + static_cast<uint32_t>(digit_value(c));
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
  append_utf8(code, out);
  return true;
}

}  // namespace

NumberLiteral scan_number(std::string_view text, Fraction fraction) {
  NumberLiteral number;
  const int base = prefix_base(text);
  const size_t prefix = base == 10 ? 0 : 2;
  number.bytes = prefix + scan_digits(text, prefix, base);
  const size_t fraction_bytes =
      base == 10 && fraction == Fraction::kAllowed ? scan_fraction(text.substr(number.bytes)) : 0;
  if (fraction_bytes > 0) {
    number.bytes += fraction_bytes;
    number.is_real = true;
    number.real = std::strtod(without_underscores(text.substr(0, number.bytes)).c_str(), nullptr);
    return number;
  }
  const std::string_view digits = text.substr(prefix, number.bytes - prefix);
  if (base == 10 && digits.size() > 1 && digits[0] == '0' &&
      digits.find_first_not_of("0_") != std::string_view::npos) {
    number.error = "a number must not begin with 0";
  }
  const std::optional<Int> value = digits_value(digits, base);
  if (!value) number.error = "a number is too large";
  number.integer = value.value_or(0);
  return number;
}

std::optional<std::string> decode_escapes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 >= text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    constexpr std::string_view kNames = "\\'\"abfnrtv";
    constexpr std::string_view kCodes = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t known = kNames.find(c); known != std::string_view::npos) {
      out += kCodes[known];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      if (!append_code(out, text.substr(i + 1), digits, 16)) return std::nullopt;
      i += digits;
    } else if (c == 'N') {
      return std::nullopt;
    } else if (is_octal(c)) {
      size_t digits = 1;
      while (digits < 3 && i + digits < text.size() && is_octal(text[i + digits])) ++digits;
      if (!append_code(out, text.substr(i), digits, 8)) return std::nullopt;
      i += digits - 1;
    } else if (c != '\n') {
      out += '\\';
      out += c;
    }
  }
  return out;
}

std::optional<Int> parse_integer(std::string_view text, int base) {
  text = strip(text, Side::kBoth);
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  const int prefixed = prefix_base(text);
  if (prefixed != 10 && (base == 0 || base == prefixed)) {
    text.remove_prefix(2);
    base = prefixed;
  } else if (base == 0) {
    base = 10;
  }
  if (base < 2 || base > 36 || text.empty() || scan_digits(text, 0, base) != text.size())
    return std::nullopt;
  const std::optional<Int> value = digits_value(text, base);
  if (!value) fail("an integer grows past 128 bits");
  return negative ? -*value : *value;
}

std::optional<double> parse_real(std::string_view text) {
  text = strip(text, Side::kBoth);
  std::string lowered = to_lower(text);
  const bool negative = !lowered.empty() && lowered[0] == '-';
  if (!lowered.empty() && (lowered[0] == '-' || lowered[0] == '+')) lowered.erase(0, 1);
  const double sign = negative ? -1.0 : 1.0;
  if (lowered == "inf" || lowered == "infinity")
    return sign * std::numeric_limits<double>::infinity();
  if (lowered == "nan") return std::numeric_limits<double>::quiet_NaN();
  size_t whole = scan_digits(lowered, 0, 10);
  const bool trailing_dot = whole > 0 && whole < lowered.size() && lowered[whole] == '.' &&
                            (whole + 1 == lowered.size() || lowered[whole + 1] == 'e');
  if (trailing_dot) lowered.erase(whole, 1);
  const size_t fraction = scan_fraction(std::string_view(lowered).substr(whole));
  const bool has_digits = whole > 0 || (fraction > 0 && lowered[0] == '.');
  if (!has_digits || whole + fraction != lowered.size()) return std::nullopt;
  return sign * std::strtod(without_underscores(lowered).c_str(), nullptr);
}

}  // namespace tandem::jinja
