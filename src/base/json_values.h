// Checks and conversions shared by all readers of untrusted JSON. Error messages are the readers'
// own, because they address different people: API clients, or whoever supplied a model, a profile
// or a record. Threads: any; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem {

// True: brackets of `text` nest deeper than `limit`. Ask before parsing; then documents are shallow
// and may be walked recursively.
[[nodiscard]] bool json_nests_deeper(std::string_view text, int32_t limit);

// The member `key` of an object; null: it is absent, or null.
template <class Json>
[[nodiscard]] const Json* json_member(const Json& object, std::string_view key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// The value of an integer of 64 bits. Booleans are none, and neither is 3.0; integers beyond 64
// bits come out of the parser as floats.
template <class Json>
[[nodiscard]] std::optional<int64_t> json_integer(const Json& value) {
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() &&
                      value.template get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
  return fits ? std::optional(value.template get<int64_t>()) : std::nullopt;
}

// Any number, also one of an integer.
template <class Json>
[[nodiscard]] std::optional<double> json_number(const Json& value) {
  return value.is_number() ? std::optional(value.template get<double>()) : std::nullopt;
}

template <class Json>
[[nodiscard]] std::optional<bool> json_boolean(const Json& value) {
  return value.is_boolean() ? std::optional(value.template get<bool>()) : std::nullopt;
}

template <class Json>
[[nodiscard]] std::optional<std::string> json_string(const Json& value) {
  return value.is_string() ? std::optional(value.template get<std::string>()) : std::nullopt;
}

// The field `key` of an object, as `convert` reads its value: const Json& -> std::optional<T>.
// Nullopt: it is absent, or null. A value that `convert` does not read is the error that `wrong`
// makes of it: const Json& -> Error.
template <class Json, class Convert, class Wrong>
[[nodiscard]] auto json_field(const Json& object, std::string_view key, const Convert& convert,
                              const Wrong& wrong) -> Result<decltype(convert(object))> {
  const Json* value = json_member(object, key);
  if (value == nullptr) {
    return decltype(convert(object))();
  }
  auto converted = convert(*value);
  if (!converted) {
    return wrong(*value);
  }
  return converted;
}

}  // namespace tandem
