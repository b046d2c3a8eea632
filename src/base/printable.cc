#include "base/printable.h"

#include <algorithm>

#include "base/utf8.h"

namespace tandem {

bool is_safe_to_show(char32_t code_point) {
  const bool is_control = code_point < 0x20 || (code_point >= 0x7F && code_point <= 0x9F);
  const bool turns_lines = (code_point >= 0x202A && code_point <= 0x202E) ||
                           (code_point >= 0x2066 && code_point <= 0x2069);
  const bool ends_lines = code_point == 0x2028 || code_point == 0x2029;
  return !is_control && !turns_lines && !ends_lines;
}

std::string printable(std::string_view text, size_t max_bytes) {
  std::string shown;
  while (!text.empty()) {
    constexpr size_t kMaxCharBytes = 4;
    const std::string_view window = text.substr(0, kMaxCharBytes);
    // The valid beginning of the window is at least one character, or there is none.
    const size_t valid = find_invalid_utf8(window).value_or(window.size());
    const Utf8Char character = valid == 0 ? Utf8Char{0, 1} : front_char(window);
    const auto bytes = static_cast<size_t>(character.bytes);
    const char32_t c = character.code_point;
    const bool blank = valid > 0 && (c == '\n' || c == '\r' || c == '\t');
    const std::string_view out = blank                               ? " "
                                 : valid == 0 || !is_safe_to_show(c) ? "?"
                                                                     : text.substr(0, bytes);
    if (out.size() > max_bytes - std::min(max_bytes, shown.size())) {
      break;
    }
    shown += out;
    text.remove_prefix(bytes);
  }
  return shown;
}

}  // namespace tandem
