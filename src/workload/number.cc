#include "workload/number.h"

#include <charconv>
#include <cmath>

namespace tandem::workload {

namespace {

template <class Number>
std::optional<Number> read(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end == text.npos ? text.npos : end - begin));
    if (end == text.npos) {
      return parts;
    }
    begin = end + 1;
  }
}

std::optional<double> read_number(std::string_view text) {
  const std::optional<double> value = read<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<int64_t> read_integer(std::string_view text) { return read<int64_t>(text); }

}  // namespace tandem::workload
