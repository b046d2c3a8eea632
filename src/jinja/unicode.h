// UTF-8 text by code points, the way Python's str sees it: decoding, character classes, case,
// stripping. All texts must be valid UTF-8. No locale. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem::jinja {

struct CodePoint {
  char32_t code;
  size_t bytes;  // 1 to 4
};

// Needs at < text.size().
CodePoint decode_at(std::string_view text, size_t at);

size_t count_code_points(std::string_view text);
// Byte offset of the code point number `index`; text.size() when there are fewer.
size_t byte_offset(std::string_view text, size_t index);

bool is_space(char32_t code);
bool is_printable(char32_t code);
bool is_alpha(char32_t code);
bool is_decimal(char32_t code);  // digits of any script
bool is_digit(char32_t code);    // and raised, lowered, circled ones
bool is_numeric(
    char32_t code);  // and fractions, Roman numerals; not CJK numerals, which are letters
bool is_alphanumeric(char32_t code);
bool begins_name(char32_t code);     // a Python identifier
bool continues_name(char32_t code);  // behind its first character
bool is_cased(char32_t code);
bool is_lower(char32_t code);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);        // str.title(): every run of cased letters
std::string to_swapped(std::string_view text);      // str.swapcase()
std::string to_folded(std::string_view text);       // str.casefold()
std::string to_capitalized(std::string_view text);  // first letter in title case, the rest lower

enum class Side { kLeft, kRight, kBoth };
// Removes white space (`characters` empty) or the code points listed in `characters`.
std::string_view strip(std::string_view text, Side side);
std::string_view strip_characters(std::string_view text, std::string_view characters, Side side);

}  // namespace tandem::jinja
