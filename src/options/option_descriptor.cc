#include "options/option_descriptor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>

#include "base/units.h"

namespace tandem {
namespace {

// "2^30" is read sooner than its digits.
std::string number_text(int64_t number) {
  constexpr int64_t kReadable = int64_t{1} << 20;
  if (number >= kReadable && std::has_single_bit(static_cast<uint64_t>(number))) {
    return fmt::format("2^{}", std::countr_zero(static_cast<uint64_t>(number)));
  }
  return fmt::format("{}", number);
}

// Absent: no bound.
std::optional<std::string> bound_text(const OptionValue& bound, OptionKind kind) {
  if (const auto* whole = std::get_if<int64_t>(&bound)) {
    return kind == OptionKind::kBytes ? exact_bytes(*whole) : number_text(*whole);
  }
  if (const auto* real = std::get_if<double>(&bound)) {
    return fmt::format("{}", *real);
  }
  return std::nullopt;
}

}  // namespace

std::string config_key(const OptionDescriptor& option) {
  std::string key = option.key.empty() ? option.name : option.key;
  std::ranges::replace(key, '-', '_');
  return key;
}

std::string option_text(const OptionDescriptor& option) {
  const OptionValue value = option.value.get();
  if (const auto* number = std::get_if<int64_t>(&value)) {
    return option.value.kind == OptionKind::kBytes ? exact_bytes(*number)
                                                   : fmt::format("{}", *number);
  }
  if (const auto* number = std::get_if<uint64_t>(&value)) {
    return fmt::format("{}", *number);
  }
  if (const auto* number = std::get_if<double>(&value)) {
    return fmt::format("{}", *number);
  }
  if (const auto* yes = std::get_if<bool>(&value)) {
    return *yes ? "true" : "false";
  }
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
    return fmt::format("{}", fmt::join(*list, ", "));
  }
  const auto* text = std::get_if<std::string>(&value);
  return text == nullptr ? std::string() : *text;
}

std::string range_text(const OptionDescriptor& option) {
  const OptionRange& range = option.value.range;
  std::optional<std::string> min = bound_text(range.min, option.value.kind);
  const std::optional<std::string> max = bound_text(range.max, option.value.kind);
  const auto* first = std::get_if<int64_t>(&range.min);
  const auto* last = std::get_if<int64_t>(&range.max);
  if (option.value.kind == OptionKind::kBytes && first != nullptr && *first == 0) {
    min.reset();  // no size is less
  }
  const bool are_two = first != nullptr && last != nullptr && *last == *first + 1;
  std::string text = min && max ? fmt::format("{} {} {}", *min, are_two ? "or" : "to", *max)
                     : min      ? fmt::format("{} or more", *min)
                     : max      ? fmt::format("at most {}", *max)
                                : std::string();
  return text.empty() || option.unit.empty() ? text : fmt::format("{} {}", text, option.unit);
}

Status set_option(const OptionDescriptor& option, const OptionValue& value) {
  const Status set = option.value.set(value);
  if (set.ok()) {
    return {};
  }
  const bool counts = option.value.kind == OptionKind::kNumber && !option.unit.empty();
  return invalid_argument(fmt::format("--{}: {}{}", option.name, set.error().message,
                                      counts ? fmt::format(" {}", option.unit) : ""),
                          option.name);
}

OptionTable options_of_group(const OptionTable& table, std::string_view group) {
  OptionTable options;
  std::ranges::copy_if(table, std::back_inserter(options),
                       [&](const OptionDescriptor& option) { return option.group == group; });
  return options;
}

}  // namespace tandem
