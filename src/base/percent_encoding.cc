#include "base/percent_encoding.h"

#include <algorithm>
#include <charconv>

namespace tandem {

std::string percent_decode(std::string_view text) {
  constexpr size_t kEscape = 3;  // "%2F"
  constexpr int kHexadecimal = 16;
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::string_view digits = text.substr(1, kEscape - 1);
    unsigned byte = 0;
    const bool escape =
        text.front() == '%' && digits.size() == kEscape - 1 &&
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, kHexadecimal).ptr ==
            digits.data() + digits.size();
    out += escape ? static_cast<char>(byte) : text.front();
    text.remove_prefix(escape ? kEscape : 1);
  }
  return out;
}

std::string query_decode(std::string_view text) {
  std::string spaced(text);
  std::ranges::replace(spaced, '+', ' ');
  return percent_decode(spaced);
}

}  // namespace tandem
