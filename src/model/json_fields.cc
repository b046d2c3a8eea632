#include "model/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/json_values.h"
#include "base/printable.h"

namespace tandem::model {
namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kMaxValueBytes = 60;

std::string shown_value(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMaxValueBytes) {
    text.resize(kMaxValueBytes);
    text += "...";
  }
  return text;
}

std::optional<int64_t> integer_of(const nlohmann::json& value, IntegerRange range) {
  const std::optional<int64_t> number = json_integer(value);
  return number && *number >= range.min && *number <= range.max ? number : std::nullopt;
}

std::optional<double> number_of(const nlohmann::json& value, NumberRange range) {
  if (!value.is_number()) {
    return std::nullopt;
  }
  const auto number = value.get<double>();
  return std::isfinite(number) && number >= range.min && number <= range.max ? std::optional(number)
                                                                             : std::nullopt;
}

}  // namespace

Result<std::string> read_text_file(const std::filesystem::path& file, int64_t max_bytes) {
  std::error_code failure;
  const auto bytes = std::filesystem::file_size(file, failure);
  if (failure) {
    return Error{ErrorCode::kIo,
                 fmt::format("{}: cannot be read: {}", file.filename().string(), failure.message()),
                 {}};
  }
  if (std::cmp_greater(bytes, max_bytes)) {
    return invalid_argument(fmt::format("{}: is {} bytes, more than the {} that such a file may be",
                                        file.filename().string(), bytes, max_bytes));
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream.is_open()) {
    return Error{ErrorCode::kIo,
                 fmt::format("'{}' cannot be opened: {}", file.string(),
                             std::generic_category().message(errno)),
                 {}};
  }
  std::string text(static_cast<size_t>(bytes), '\0');
  stream.read(text.data(), static_cast<std::streamsize>(bytes));
  if (!stream) {
    return Error{ErrorCode::kIo,
                 fmt::format("{}: cannot be read; check its permissions and the disk",
                             file.filename().string()),
                 {}};
  }
  return text;
}

JsonFields::JsonFields(std::string name, std::string path,
                       std::shared_ptr<const nlohmann::json> json)
    : name_(std::move(name)), path_(std::move(path)), json_(std::move(json)) {}

Result<JsonFields> JsonFields::parse(std::string name, std::string_view text) {
  if (json_nests_deeper(text, kMaxDepth)) {
    return invalid_argument(fmt::format(
        "{}: is nested more than {} levels deep; is it the right file?", name, kMaxDepth));
  }
  try {
    auto json = std::make_shared<nlohmann::json>(nlohmann::json::parse(text));
    if (!json->is_object()) {
      return invalid_argument(
          fmt::format("{}: must be a JSON object, but is {}", name, shown_value(*json)));
    }
    return JsonFields(std::move(name), "", std::move(json));
  } catch (const nlohmann::json::exception& failure) {
    std::string reason = failure.what();
    std::replace_if(
        reason.begin(), reason.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
    return invalid_argument(fmt::format("{}: is not valid JSON: {}; download or write it again",
                                        name, reason.substr(0, 240)));
  }
}

JsonFields JsonFields::of(std::string name, nlohmann::json object, Names names) {
  JsonFields fields(std::move(name), "", std::make_shared<nlohmann::json>(std::move(object)));
  fields.names_ = std::make_shared<Names>(std::move(names));
  return fields;
}

Error JsonFields::error(std::string_view key, std::string_view message) const {
  std::string path = fmt::format("{}{}", path_, key);
  if (names_ != nullptr) {
    const auto named = names_->find(path);
    path = named == names_->end() ? path : named->second;
  }
  return invalid_argument(printable(fmt::format("{}: {}: {}", name_, path, message)),
                          printable(path));
}

Error JsonFields::unsupported(std::string_view key, std::string_view message) const {
  Error error = this->error(key, message);
  error.code = ErrorCode::kUnsupported;
  return error;
}

const nlohmann::json* JsonFields::find(std::string_view key) const {
  return json_member(*json_, key);
}

bool JsonFields::has(std::string_view key) const { return find(key) != nullptr; }

Error JsonFields::wrong_type(std::string_view key, std::string_view wanted) const {
  return error(key, fmt::format("is {}, but must be {}", shown_value(*find(key)), wanted));
}

// As json_field; `wanted` is what a value must be that `convert` does not read.
template <class Convert>
auto JsonFields::field(std::string_view key, const Convert& convert,
                       std::string_view wanted) const {
  return json_field(*json_, key, convert,
                    [&](const nlohmann::json&) { return wrong_type(key, wanted); });
}

Result<std::optional<int64_t>> JsonFields::integer(std::string_view key, IntegerRange range) const {
  return field(
      key, [&](const nlohmann::json& value) { return integer_of(value, range); },
      fmt::format("an integer from {} to {}", range.min, range.max));
}

Result<int64_t> JsonFields::required_integer(std::string_view key, IntegerRange range) const {
  ASSIGN_OR_RETURN(const std::optional<int64_t> value, integer(key, range));
  if (!value) {
    return error(
        key, fmt::format("is missing, but must be an integer from {} to {}", range.min, range.max));
  }
  return *value;
}

Result<std::optional<double>> JsonFields::number(std::string_view key, NumberRange range) const {
  return field(
      key, [&](const nlohmann::json& value) { return number_of(value, range); },
      fmt::format("a number from {} to {}", range.min, range.max));
}

Result<std::optional<bool>> JsonFields::boolean(std::string_view key) const {
  return field(key, json_boolean<nlohmann::json>, "true or false");
}

Result<std::optional<std::string>> JsonFields::string(std::string_view key) const {
  return field(key, json_string<nlohmann::json>, "a string");
}

Result<std::vector<int64_t>> JsonFields::integers(std::string_view key, IntegerRange range) const {
  std::vector<int64_t> numbers;
  const nlohmann::json* value = find(key);
  if (value == nullptr) {
    return numbers;
  }
  const nlohmann::json list = value->is_array() ? *value : nlohmann::json::array({*value});
  for (const nlohmann::json& item : list) {
    const std::optional<int64_t> number = integer_of(item, range);
    if (!number) {
      return wrong_type(
          key, fmt::format("an integer from {} to {}, or a list of them", range.min, range.max));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

std::vector<int64_t> JsonFields::usable_integers(std::string_view key, IntegerRange range,
                                                 std::vector<std::string>& warnings) const {
  constexpr int kMaxWarnings = 4;
  int refused = 0;
  std::vector<int64_t> numbers;
  const nlohmann::json* value = find(key);
  if (value == nullptr) {
    return numbers;
  }
  const nlohmann::json list = value->is_array() ? *value : nlohmann::json::array({*value});
  for (const nlohmann::json& item : list) {
    if (const std::optional<int64_t> number = integer_of(item, range)) {
      numbers.push_back(*number);
    } else if (++refused <= kMaxWarnings) {
      const std::string_view names = value->is_array() ? "holds" : "is";
      warnings.push_back(error(key, fmt::format("{} {}, but must be an integer from {} to {}, or "
                                                "a list of them; ignored",
                                                names, shown_value(item), range.min, range.max))
                             .message);
    }
  }
  return numbers;
}

Result<std::vector<std::string>> JsonFields::strings(std::string_view key) const {
  std::vector<std::string> texts;
  const nlohmann::json* value = find(key);
  if (value == nullptr) {
    return texts;
  }
  const nlohmann::json list = value->is_array() ? *value : nlohmann::json::array({*value});
  for (const nlohmann::json& item : list) {
    if (!item.is_string()) {
      return wrong_type(key, "a string or a list of strings");
    }
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

Result<std::optional<JsonFields>> JsonFields::object(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) {
    return std::optional<JsonFields>();
  }
  if (!value->is_object()) {
    return wrong_type(key, "an object");
  }
  // Shares ownership of the whole document.
  JsonFields inner(name_, fmt::format("{}{}.", path_, key),
                   std::shared_ptr<const nlohmann::json>(json_, value));
  inner.names_ = names_;
  return std::optional<JsonFields>(std::move(inner));
}

}  // namespace tandem::model
