#include "text/byte_level.h"

#include <array>

#include "base/utf8.h"

namespace tandem::text {
namespace {

// Printable Latin-1 stands for itself; the 68 other bytes, in order, are U+0100 onwards.
constexpr bool stands_for_itself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char32_t, 256> kChars = [] {
  std::array<char32_t, 256> chars{};
  char32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    chars[byte] = stands_for_itself(byte) ? char32_t{byte} : next++;
  }
  return chars;
}();

constexpr char32_t kEndOfChars = 0x144;

constexpr std::array<int16_t, kEndOfChars> kBytes = [] {
  std::array<int16_t, kEndOfChars> bytes{};
  bytes.fill(-1);
  for (uint32_t byte = 0; byte < 256; ++byte) {
    bytes[kChars[byte]] = static_cast<int16_t>(byte);
  }
  return bytes;
}();

}  // namespace

char32_t byte_level_char(uint8_t byte) { return kChars[byte]; }

std::optional<std::string> byte_level_decode(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  while (!token.empty()) {
    const Utf8Char c = front_char(token);
    if (c.code_point >= kEndOfChars || kBytes[c.code_point] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(kBytes[c.code_point]));
    token.remove_prefix(static_cast<size_t>(c.bytes));
  }
  return bytes;
}

std::string byte_level_encode(std::string_view bytes) {
  std::string token;
  for (const char c : bytes) {
    append_utf8(kChars[static_cast<uint8_t>(c)], token);
  }
  return token;
}

std::optional<uint8_t> byte_fallback_value(std::string_view token) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>' ||
      digit(token[3]) < 0 || digit(token[4]) < 0) {
    return std::nullopt;
  }
  return static_cast<uint8_t>(digit(token[3]) * 16 + digit(token[4]));
}

}  // namespace tandem::text
