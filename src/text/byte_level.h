// The renaming of bytes to printable characters that GPT-2 began: vocabularies of byte-level BPE
// spell " the" as "Ġthe". Threads: any; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::text {

// The character that stands for a byte.
[[nodiscard]] char32_t byte_level_char(uint8_t byte);

// The bytes that `token` stands for; nullopt if it has a character that stands for none. Needs
// valid UTF-8.
[[nodiscard]] std::optional<std::string> byte_level_decode(std::string_view token);
[[nodiscard]] std::string byte_level_encode(std::string_view bytes);

// The byte that a byte-fallback token ("<0x0A>") stands for.
[[nodiscard]] std::optional<uint8_t> byte_fallback_value(std::string_view token);

}  // namespace tandem::text
