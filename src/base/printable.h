// Text from outside (servers, files, folders) as a terminal and a log may show it.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem {

// False: a terminal would act on the character (control characters, C1 included), break a line at
// it, or turn the text after it around (bidirectional controls).
[[nodiscard]] bool is_safe_to_show(char32_t code_point);

// The beginning of `text` on one line, whole characters of at most `max_bytes` in all. Line ends
// and tabs become blanks; other unsafe characters, and bytes that are not UTF-8, become '?'.
[[nodiscard]] std::string printable(std::string_view text,
                                    size_t max_bytes = std::string_view::npos);

}  // namespace tandem
