#include "openai/json_input.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/json_values.h"
#include "base/utf8.h"
#include "openai/json_builder.h"

namespace tandem::openai {

namespace {

// Bounds depth and keys before anything is built. Unbalanced or misplaced signs are the parser's to
// refuse.
Status check_shape(std::string_view body, const JsonLimits& limits, std::string_view subject) {
  std::vector<int32_t> keys;  // of the containers that are open
  int64_t values = 1;
  bool in_string = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
      continue;
    }
    if ((c == ',' || c == '{' || c == '[') && ++values > limits.max_values) {
      return invalid_argument(fmt::format(
          "{} has more than {} values; send fewer prompts at a time", subject, limits.max_values));
    }
    if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      keys.push_back(0);
      if (std::ssize(keys) > limits.max_depth) {
        return invalid_argument(fmt::format("{} is nested deeper than {} levels; flatten it",
                                            subject, limits.max_depth));
      }
    } else if ((c == '}' || c == ']') && !keys.empty()) {
      keys.pop_back();
    } else if (c == ':' && !keys.empty() && ++keys.back() > limits.max_object_keys) {
      return invalid_argument(
          fmt::format("an object in {} has more than {} keys", subject, limits.max_object_keys));
    }
  }
  return {};
}

// "[json.exception.parse_error.101] parse error at line 1, column 2: ..." without the library's
// label, and without most of what it read last, which may be as long as the body.
std::string without_label(std::string_view message) {
  constexpr size_t kShownBytes = 160;
  const size_t end = message.find("] ");
  if (message.starts_with('[') && end != std::string_view::npos) {
    message.remove_prefix(end + 2);
  }
  return message.size() > kShownBytes ? std::string(message.substr(0, kShownBytes)) + "..."
                                      : std::string(message);
}

// Why the parser refused `body`. A body of one line has only columns.
std::string parse_error(std::string_view body, std::string_view message) {
  constexpr std::string_view kLine = "line 1, ";
  std::string text = without_label(message);
  const size_t at = text.find(kLine);
  if (at != std::string::npos && body.find('\n') == std::string_view::npos) {
    text.erase(at, kLine.size());
  }
  return text;
}

}  // namespace

Result<Json> parse_object(std::string_view body, const JsonLimits& limits,
                          std::string_view subject) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return invalid_argument(fmt::format("{} is empty; send a JSON object", subject));
  }
  if (const std::optional<size_t> at = find_invalid_utf8(body)) {
    return invalid_argument(
        fmt::format("{} is not valid UTF-8 at byte {}; send JSON encoded as UTF-8", subject, *at));
  }
  RETURN_IF_ERROR(check_shape(body, limits, subject));
  JsonBuilder builder;
  if (!Json::sax_parse(body.begin(), body.end(), &builder)) {
    return invalid_argument(
        fmt::format("{} is not valid JSON: {}", subject, parse_error(body, builder.error())));
  }
  Json parsed = std::move(builder).take();
  if (!parsed.is_object()) {
    return invalid_argument(
        fmt::format("{} must be a JSON object, not {}", subject, describe(parsed)));
  }
  return parsed;
}

std::string quoted(const Json& value) {
  constexpr size_t kShownBytes = 40;
  if (!value.is_string()) {
    return describe(value);
  }
  const auto& string = value.get_ref<const std::string&>();
  std::string shown;
  append_repaired_utf8(std::string_view(string).substr(0, kShownBytes), Utf8Tail::kMayGrow,
                       InvalidBytes::kOnePerSequence, shown);
  return fmt::format("\"{}{}\"", shown, string.size() > kShownBytes ? "..." : "");
}

std::string describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::string:
      return "the string " + quoted(value);
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::number_float:
      return fmt::format("the number {}", value.dump());
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    case Json::value_t::array:
      return value.empty() ? "an empty list" : "a list";
    case Json::value_t::object:
      return "an object";
    default:
      return "null";
  }
}

std::optional<int64_t> as_integer(const Json& value, int64_t low, int64_t high) {
  constexpr double kExact = 9007199254740992.0;  // 2^53: above it, doubles skip integers
  std::optional<int64_t> integer = json_integer(value);
  if (value.is_number_float()) {
    const auto real = value.get<double>();
    if (std::abs(real) <= kExact && real == std::floor(real)) {
      integer = static_cast<int64_t>(real);
    }
  }
  return integer && *integer >= low && *integer <= high ? integer : std::nullopt;
}

namespace {

std::optional<float> as_number(const Json& value, NumberRange range) {
  if (!value.is_number()) {
    return std::nullopt;
  }
  const auto real = value.get<double>();
  const bool in_range = real >= range.low && real <= range.high;  // false for NaN
  if (!in_range || std::abs(real) > std::numeric_limits<float>::max()) {
    return std::nullopt;
  }
  return static_cast<float>(real);
}

std::string text_of(NumberRange range) {
  constexpr double kEndless = std::numeric_limits<double>::max();
  return range.high == kEndless ? fmt::format("a number of at least {}", range.low)
                                : fmt::format("a number from {} to {}", range.low, range.high);
}

}  // namespace

FieldReader::FieldReader(const Json& object, std::string_view prefix)
    : object_(object), prefix_(prefix) {
  CHECK(object.is_object(), "fields of {}", describe(object));
}

const Json* FieldReader::find(std::string_view name) const { return json_member(object_, name); }

std::string FieldReader::full_name(std::string_view name) const {
  return prefix_ + std::string(name);
}

Error FieldReader::wrong(std::string_view name, std::string_view what, const Json& value) const {
  return invalid_argument(
      fmt::format("'{}{}' must be {}, not {}", prefix_, name, what, describe(value)),
      full_name(name));
}

// As json_field; `what` says what a value must be that `convert` does not read.
template <class Convert, class What>
auto FieldReader::field(std::string_view name, const Convert& convert, const What& what) const {
  return json_field(object_, name, convert,
                    [&](const Json& value) { return wrong(name, what(), value); });
}

Result<std::optional<bool>> FieldReader::boolean(std::string_view name) const {
  return field(name, json_boolean<Json>, [] { return "true or false"; });
}

Result<std::optional<int64_t>> FieldReader::integer(std::string_view name, int64_t low,
                                                    int64_t high) const {
  return field(
      name, [&](const Json& value) { return as_integer(value, low, high); },
      [&] { return fmt::format("an integer from {} to {}", low, high); });
}

Result<std::optional<float>> FieldReader::number(std::string_view name, NumberRange range) const {
  return field(
      name, [&](const Json& value) { return as_number(value, range); },
      [&] { return text_of(range); });
}

Result<std::optional<std::string>> FieldReader::string(std::string_view name) const {
  return field(name, json_string<Json>, [] { return "a string"; });
}

Result<const Json*> FieldReader::array(std::string_view name) const {
  const Json* value = find(name);
  if (value != nullptr && !value->is_array()) {
    return wrong(name, "a list", *value);
  }
  return value;
}

Result<const Json*> FieldReader::object(std::string_view name) const {
  const Json* value = find(name);
  if (value != nullptr && !value->is_object()) {
    return wrong(name, "an object", *value);
  }
  return value;
}

}  // namespace tandem::openai
