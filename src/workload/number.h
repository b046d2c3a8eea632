// Numbers and fields of text that someone else wrote. Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tandem::workload {

// At least one part; parts may be empty.
std::vector<std::string_view> split(std::string_view text, char separator);

// The whole text must be one finite number.
std::optional<double> read_number(std::string_view text);
std::optional<int64_t> read_integer(std::string_view text);

}  // namespace tandem::workload
