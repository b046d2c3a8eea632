#include "options/option_descriptor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "base/units.h"

namespace tandem {

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
