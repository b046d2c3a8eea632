#include "gguf/metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/utf8.h"

namespace tandem::gguf {
namespace {

constexpr std::array<std::string_view, 13> kTypeNames = {
    "uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
    "bool",  "string", "array",  "uint64", "int64",  "float64"};
constexpr std::array<int8_t, 13> kTypeBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

template <class T>
T load(const std::byte* at) {
  T value{};
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::optional<int64_t> integer_of(ValueType type, const std::byte* at) {
  switch (type) {
    case ValueType::kUint8:
      return load<uint8_t>(at);
    case ValueType::kInt8:
      return load<int8_t>(at);
    case ValueType::kUint16:
      return load<uint16_t>(at);
    case ValueType::kInt16:
      return load<int16_t>(at);
    case ValueType::kUint32:
      return load<uint32_t>(at);
    case ValueType::kInt32:
      return load<int32_t>(at);
    case ValueType::kInt64:
      return load<int64_t>(at);
    case ValueType::kUint64: {
      const auto value = load<uint64_t>(at);
      return value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())
                 ? std::optional(static_cast<int64_t>(value))
                 : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> number_of(ValueType type, const std::byte* at) {
  if (type == ValueType::kFloat32) {
    return load<float>(at);
  }
  if (type == ValueType::kFloat64) {
    return load<double>(at);
  }
  const std::optional<int64_t> integer = integer_of(type, at);
  return integer ? std::optional(static_cast<double>(*integer)) : std::nullopt;
}

std::optional<bool> boolean_of(ValueType type, const std::byte* at) {
  return type == ValueType::kBool ? std::optional(load<uint8_t>(at) != 0) : std::nullopt;
}

std::string kind_of(const Value& value) {
  const std::string_view element = kTypeNames[static_cast<size_t>(value.element)];
  return value.is_array ? fmt::format("an array of {} {}", value.count, element)
                        : fmt::format("of type {}", element);
}

// The string at the front of `bytes`, which the header's parser has checked.
std::string_view take_string(std::span<const std::byte>& bytes) {
  const auto length = static_cast<size_t>(load<uint64_t>(bytes.data()));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  bytes = bytes.subspan(8 + length);
  return text;
}

}  // namespace

int64_t value_bytes(ValueType type) {
  const auto index = static_cast<size_t>(type);
  return index < kTypeBytes.size() ? kTypeBytes[index] : 0;
}

std::string shown(std::string_view text) {
  constexpr size_t kMaxBytes = 80;
  std::string result(text.substr(0, kMaxBytes));
  std::replace_if(
      result.begin(), result.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  return text.size() > kMaxBytes ? result + "..." : result;
}

const Value* Metadata::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

Error Metadata::error(std::string_view key, std::string_view message) const {
  return invalid_argument(fmt::format("{}: key '{}' {}", file_, key, message), std::string(key));
}

Error Metadata::unsupported(std::string_view key, std::string_view message) const {
  Error error = this->error(key, message);
  error.code = ErrorCode::kUnsupported;
  return error;
}

Error Metadata::wrong_type(std::string_view key, std::string_view wanted) const {
  return error(key, fmt::format("is {}, but must be {}; convert the model again",
                                kind_of(*find(key)), wanted));
}

template <class Convert>
auto Metadata::single(std::string_view key, const Convert& convert, std::string_view wanted) const {
  using T = decltype(convert(ValueType::kUint8, nullptr));
  const Value* value = find(key);
  if (value == nullptr) {
    return Result<T>(T());
  }
  const T read = value->is_array ? T() : convert(value->element, value->bytes.data());
  return read ? Result<T>(read) : Result<T>(wrong_type(key, wanted));
}

template <class Convert>
auto Metadata::list(std::string_view key, const Convert& convert, std::string_view wanted) const {
  using Item = typename decltype(convert(ValueType::kUint8, nullptr))::value_type;
  using Items = std::optional<std::vector<Item>>;
  const Value* value = find(key);
  if (value == nullptr) {
    return Result<Items>(Items());
  }
  std::vector<Item> items;
  if (value->element == ValueType::kString) {
    return Result<Items>(wrong_type(key, wanted));
  }
  const int64_t step = value_bytes(value->element);
  items.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto item = convert(value->element, value->bytes.data() + static_cast<int64_t>(i) * step);
    if (!item) {
      return Result<Items>(wrong_type(key, wanted));
    }
    items.push_back(*item);
  }
  return Result<Items>(Items(std::move(items)));
}

Result<std::optional<int64_t>> Metadata::integer(std::string_view key) const {
  return single(key, integer_of, "an integer");
}

Result<std::optional<double>> Metadata::number(std::string_view key) const {
  return single(key, number_of, "a number");
}

Result<std::optional<bool>> Metadata::boolean(std::string_view key) const {
  return single(key, boolean_of, "a bool");
}

Result<std::optional<std::vector<int64_t>>> Metadata::integers(std::string_view key) const {
  return list(key, integer_of, "an integer or an array of integers");
}

Result<std::optional<std::vector<float>>> Metadata::numbers(std::string_view key) const {
  const auto float_of = [](ValueType type, const std::byte* at) {
    const std::optional<double> number = number_of(type, at);
    return number ? std::optional(static_cast<float>(*number)) : std::nullopt;
  };
  return list(key, float_of, "a number or an array of numbers");
}

Result<std::optional<std::string>> Metadata::string(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) {
    return std::optional<std::string>();
  }
  if (value->is_array || value->element != ValueType::kString) {
    return wrong_type(key, "a string");
  }
  std::span<const std::byte> bytes = value->bytes;
  const std::string_view text = take_string(bytes);
  if (find_invalid_utf8(text)) {
    return error(key, "is not valid UTF-8; convert the model again");
  }
  return std::optional(std::string(text));
}

Result<std::optional<std::vector<std::string_view>>> Metadata::strings(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) {
    return std::optional<std::vector<std::string_view>>();
  }
  if (value->element != ValueType::kString) {
    return wrong_type(key, "an array of strings");
  }
  std::vector<std::string_view> texts;
  texts.reserve(value->count);
  std::span<const std::byte> bytes = value->bytes;
  for (uint64_t i = 0; i < value->count; ++i) {
    texts.push_back(take_string(bytes));
  }
  return std::optional(std::move(texts));
}

}  // namespace tandem::gguf
