#include "options/option_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json_values.h"

namespace tandem {
namespace {

constexpr const char* kMasked = "***";

bool is_given(const OptionValue& value) {
  const auto* list = std::get_if<std::vector<std::string>>(&value);
  return !std::holds_alternative<std::monostate>(value) && (list == nullptr || !list->empty());
}

nlohmann::ordered_json to_json(const OptionValue& value) {
  return std::visit(
      [](const auto& held) -> nlohmann::ordered_json {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::monostate>) {
          return nullptr;
        } else {
          return held;
        }
      },
      value);
}

// Absent: no option has values of this kind.
std::optional<OptionValue> from_json(const nlohmann::json& json) {
  if (json.is_boolean()) {
    return json.get<bool>();
  }
  if (json.is_string()) {
    return json.get<std::string>();
  }
  if (const std::optional<int64_t> number = json_integer(json)) {
    return *number;
  }
  if (json.is_number_unsigned()) {
    return json.get<uint64_t>();
  }
  if (json.is_number_float()) {
    return json.get<double>();
  }
  const bool is_list = json.is_array() &&
                       std::ranges::all_of(json, [](const auto& item) { return item.is_string(); });
  return is_list ? std::optional<OptionValue>(json.get<std::vector<std::string>>()) : std::nullopt;
}

}  // namespace

void write_options(const OptionTable& table, nlohmann::ordered_json& config) {
  for (const OptionDescriptor& option : table) {
    const OptionValue value = option.value.get();
    config[config_key(option)] = option.secret ? nlohmann::ordered_json() : to_json(value);
    if (option.secret && is_given(value)) {
      config[config_key(option)] = kMasked;
    }
  }
}

Status read_recorded_options(const nlohmann::json& config, const OptionTable& table) {
  std::string missing;  // told if nothing else is wrong
  for (const OptionDescriptor& option : table) {
    if (option.recorded == Recorded::kNo) {
      continue;
    }
    const std::string key = config_key(option);
    const nlohmann::json* found = json_member(config, key);
    if (found == nullptr) {
      missing = missing.empty() && option.recorded == Recorded::kAlways ? key : missing;
      continue;
    }
    const std::optional<OptionValue> value = from_json(*found);
    const Status set =
        value ? option.value.set(*value) : Status(invalid_argument("it is no value of an option"));
    if (!set.ok()) {
      return invalid_argument(
          fmt::format("the record's configuration is broken: {}: {}", key, set.error().message));
    }
  }
  if (!missing.empty()) {
    return invalid_argument(
        fmt::format("the record's configuration is broken: {} is missing", missing));
  }
  return {};
}

}  // namespace tandem
