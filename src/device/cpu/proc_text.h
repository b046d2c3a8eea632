// What the kernel tells in small text files (/proc, /sys, cgroups): numbers, fields by name, lists
// such as "0-3,8". Nothing here trusts a file: what cannot be understood is absent. Any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::device {

// Empty where the file cannot be read: a limit that cannot be seen is not applied.
std::string read_text(const std::filesystem::path& path);

// The number that the text begins with.
std::optional<int64_t> parse_number(std::string_view text);

// The number after `key` at the start of a line ("MemTotal:   123 kB", "inactive_file 123").
std::optional<int64_t> find_field(const std::string& text, std::string_view key);

// Both ends belong to it; 0 <= first <= last.
struct NumberRange {
  int64_t first = 0;
  int64_t last = 0;
  friend bool operator==(const NumberRange&, const NumberRange&) = default;
};

// "0-3,8", a line feed behind it or not; blank: no ranges. nullopt for anything else. Ranges stay
// ranges, however large.
std::optional<std::vector<NumberRange>> parse_ranges(std::string_view text);
bool in_ranges(std::span<const NumberRange> ranges, int64_t number);

// The reverse: {0, 1, 2, 8} gives "0-2,8". Ascending, each once.
std::string format_ranges(std::span<const int32_t> numbers);

}  // namespace tandem::device
