// Text operations that filters and methods of str share: replacing, splitting lines, padding.
// Charges `work` for the results.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/work.h"

namespace tandem::jinja {

// str.replace; `limit` < 0: all. An empty `old` stands between all characters.
std::string replace_text(std::string_view text, std::string_view old, std::string_view with,
                         int64_t limit, Work& work);

// str.splitlines() without the line ends; views of `text`.
std::vector<std::string_view> split_lines(std::string_view text);

enum class PadSide { kLeft, kRight, kBoth };  // where the fill goes
std::string pad_text(std::string_view text, int64_t width, std::string_view fill, PadSide side,
                     Work& work);

}  // namespace tandem::jinja
