#include "device/cpu/proc_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

namespace tandem::device {
namespace {

// All of the text, and digits alone.
std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) {
    return std::nullopt;
  }
  return value;
}

std::string_view without_space_at_ends(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n";
  const size_t first = text.find_first_not_of(kSpace);
  return first == std::string_view::npos
             ? std::string_view{}
             : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) {
    return std::nullopt;
  }
  return value;
}

std::optional<int64_t> find_field(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > key.size() && line.starts_with(key) &&
        (line[key.size()] == ' ' || line[key.size()] == ':' || line[key.size()] == '\t')) {
      const size_t digits = line.find_first_of("0123456789", key.size());
      if (digits != std::string::npos) {
        return parse_number(std::string_view(line).substr(digits));
      }
    }
  }
  return std::nullopt;
}

std::optional<std::vector<NumberRange>> parse_ranges(std::string_view text) {
  std::vector<NumberRange> ranges;
  std::string_view rest = without_space_at_ends(text);
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view one = rest.substr(0, comma);
    const size_t dash = one.find('-');
    const auto first = whole_number(one.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : whole_number(one.substr(dash + 1));
    if (!first || !last || *last < *first) {
      return std::nullopt;
    }
    ranges.push_back({*first, *last});
    if (comma == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(comma + 1);
    if (rest.empty()) {
      return std::nullopt;  // nothing behind the comma
    }
  }
  return ranges;
}

bool in_ranges(std::span<const NumberRange> ranges, int64_t number) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const NumberRange& range) {
    return number >= range.first && number <= range.last;
  });
}

std::string format_ranges(std::span<const int32_t> numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) {
      ++end;
    }
    fmt::format_to(std::back_inserter(text), "{}{}", text.empty() ? "" : ",", numbers[i]);
    if (end - i > 1) {
      fmt::format_to(std::back_inserter(text), "-{}", numbers[end - 1]);
    }
    i = end;
  }
  return text;
}

}  // namespace tandem::device
