// Literals of template source: numbers as jinja2 writes them and the escapes of its strings. Any
// thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "jinja/value.h"

namespace tandem::jinja {

enum class Fraction { kAllowed, kNo };

struct NumberLiteral {
  size_t bytes = 0;
  bool is_real = false;
  Int integer = 0;
  double real = 0;
  std::string error;  // empty when the literal is good
};

// The number at the start of `text`, which must begin with a digit: 12, 1_000, 0x1F, 0b11,
// 0o17, 1.5, 2e10.
NumberLiteral scan_number(std::string_view text, Fraction fraction);

// Python's \n, \x41, \u00e9, \101 and so on; an unknown escape keeps its backslash. nullopt when
// one is broken.
std::optional<std::string> decode_escapes(std::string_view text);

// Python's int(text, base) and float(text): white space around, signs, single underscores between
// digits. Base 0 reads a prefix. nullopt when `text` is no number; an int beyond 128
// bits is a failure.
std::optional<Int> parse_integer(std::string_view text, int base);
std::optional<double> parse_real(std::string_view text);

}  // namespace tandem::jinja
