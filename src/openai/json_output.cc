#include "openai/json_output.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <iterator>

#include "base/utf8.h"

namespace tandem::openai {

namespace {

// What stands for each byte that must be escaped: 'u' for \u00XX, 0 for none.
constexpr std::array<char, 256> escapes() {
  std::array<char, 256> table{};
  for (size_t i = 0; i < 0x20; ++i) {
    table[i] = 'u';
  }
  table['\b'] = 'b';
  table['\t'] = 't';
  table['\n'] = 'n';
  table['\f'] = 'f';
  table['\r'] = 'r';
  table['"'] = '"';
  table['\\'] = '\\';
  return table;
}
constexpr std::array<char, 256> kEscapes = escapes();
constexpr std::string_view kHex = "0123456789abcdef";

}  // namespace

void append_escaped(std::string& out, std::string_view utf8) {
  size_t begin = 0;
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto byte = static_cast<uint8_t>(utf8[i]);
    const char escape = kEscapes[byte];
    if (escape == 0) {
      continue;
    }
    out.append(utf8, begin, i - begin);
    begin = i + 1;
    out += '\\';
    out += escape;
    if (escape == 'u') {
      out += "00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  out.append(utf8, begin);
}

void append_string(std::string& out, std::string_view utf8) {
  out += '"';
  append_escaped(out, utf8);
  out += '"';
}

void append_untrusted_string(std::string& out, std::string_view bytes) {
  std::string repaired;
  append_repaired_utf8(bytes, Utf8Tail::kIsFinal, InvalidBytes::kOnePerSequence, repaired);
  append_string(out, repaired);
}

void append_integer(std::string& out, int64_t value) {
  const fmt::format_int digits(value);
  out.append(digits.data(), digits.size());
}

void append_logprob(std::string& out, float value) {
  constexpr float kLowest = -9999.0F;
  fmt::format_to(std::back_inserter(out), "{}",
                 std::isfinite(value) && value > kLowest ? value : kLowest);
}

}  // namespace tandem::openai
