// UTF-8: checking, walking and repairing. Not here: normal forms (normalizer.h).
// Units: bytes. Threads: any; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem {

struct Utf8Char {
  char32_t code_point = 0;
  int32_t bytes = 0;
};

// The character at the front of `text`, which must be valid UTF-8 and not empty.
[[nodiscard]] Utf8Char front_char(std::string_view text);

// Where the last character of `text` begins; `text` must be valid UTF-8 and not empty.
[[nodiscard]] size_t last_char_begin(std::string_view text);

// True: `byte` is a later byte of a character of several bytes.
[[nodiscard]] constexpr bool continues_char(char byte) {
  return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
}

// How many characters begin in `text`. Bytes that continue a character count with its first byte.
[[nodiscard]] int64_t count_chars(std::string_view text);

void append_utf8(char32_t code_point, std::string& out);

// The offset of the first byte that is not UTF-8, or nullopt if all of it is.
[[nodiscard]] std::optional<size_t> find_invalid_utf8(std::string_view text);
[[nodiscard]] Status check_utf8(std::string_view text);

// How byte sequences that are not UTF-8 become U+FFFD.
enum class InvalidBytes {
  kOnePerSequence,  // one U+FFFD for each maximal ill-formed sequence: byte-level BPE
  kOnePerByte,      // one U+FFFD for each byte: SentencePiece-style byte fallback
};

enum class Utf8Tail {
  kMayGrow,  // an unfinished character at the end is left for later
  kIsFinal,  // it counts as invalid
};

// Appends `bytes` to `out` with U+FFFD for what is not UTF-8; returns how many bytes were used.
size_t append_repaired_utf8(std::string_view bytes, Utf8Tail tail, InvalidBytes invalid,
                            std::string& out);

[[nodiscard]] bool is_unicode_space(char32_t code_point);

}  // namespace tandem
