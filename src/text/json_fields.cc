#include "text/json_fields.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/json_values.h"

namespace tandem::text {
namespace {

using nlohmann::json;

// Real files nest less than ten deep; the parts that are read recursively rely on this.
constexpr int32_t kDeepestNesting = 64;

template <class T>
Result<T> value_or_missing(std::optional<T> value, const std::optional<T>& if_absent,
                           std::string_view key, std::string_view where) {
  if (!value) {
    value = if_absent;
  }
  if (!value) {
    return bad_file(where, fmt::format("\"{}\" is missing", key));
  }
  return *std::move(value);
}

}  // namespace

Error bad_file(std::string_view where, std::string_view cause) {
  return invalid_argument(
      fmt::format("{}: {}; take the file anew from the model's source", where, cause));
}

Error unsupported(std::string_view where, std::string_view what) {
  return {
      ErrorCode::kUnsupported, fmt::format("{}: {} is not supported by Tandem", where, what), {}};
}

Result<std::string> read_file(const std::filesystem::path& path, int64_t limit_bytes) {
  std::error_code code;
  const auto kind = std::filesystem::status(path, code).type();
  if (kind == std::filesystem::file_type::none) {
    return Error{
        ErrorCode::kIo, fmt::format("{}: cannot be opened: {}", path.string(), code.message()), {}};
  }
  if (kind != std::filesystem::file_type::regular) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{}: {}; give a model folder that has this file", path.string(),
                             kind == std::filesystem::file_type::not_found ? "no such file"
                                                                           : "not a regular file"),
                 {}};
  }
  const uintmax_t size = std::filesystem::file_size(path, code);
  if (!code && size > static_cast<uintmax_t>(limit_bytes)) {
    return bad_file(path.string(),
                    fmt::format("the file has {} bytes, more than the {} that such a "
                                "file may have",
                                size, limit_bytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::string content(code ? 0 : static_cast<size_t>(size), '\0');
  if (!code && file) {
    file.read(content.data(), static_cast<std::streamsize>(content.size()));
  }
  if (code || !file) {
    return Error{ErrorCode::kIo,
                 fmt::format("{}: reading failed: {}", path.string(),
                             code ? code.message() : std::strerror(errno)),
                 {}};
  }
  return content;
}

Result<json> read_json_object(const std::filesystem::path& path, int64_t limit_bytes) {
  ASSIGN_OR_RETURN(const std::string content, read_file(path, limit_bytes));
  if (json_nests_deeper(content, kDeepestNesting)) {
    return bad_file(path.string(), fmt::format("brackets nest more than {} deep", kDeepestNesting));
  }
  try {
    json value = json::parse(content);
    if (!value.is_object()) {
      return bad_file(path.string(),
                      fmt::format("holds a JSON {} where an object is needed", value.type_name()));
    }
    return value;
  } catch (const std::exception& error) {
    return bad_file(path.string(), fmt::format("is not JSON ({})", error.what()));
  }
}

const json* find_field(const json& object, std::string_view key) {
  return json_member(object, key);
}

Result<std::string> string_field(const json& object, std::string_view key, std::string_view where,
                                 const std::optional<std::string>& if_absent) {
  ASSIGN_OR_RETURN(std::optional<std::string> text,
                   json_field(object, key, json_string<json>, [&](const json& value) {
                     return bad_file(where, fmt::format("\"{}\" is a {} where a string is needed",
                                                        key, value.type_name()));
                   }));
  return value_or_missing(std::move(text), if_absent, key, where);
}

Result<bool> bool_field(const json& object, std::string_view key, std::string_view where,
                        bool if_absent) {
  ASSIGN_OR_RETURN(const std::optional<bool> value,
                   json_field(object, key, json_boolean<json>, [&](const json& wrong) {
                     return bad_file(
                         where, fmt::format("\"{}\" is a {} where true or false is needed", key,
                                            wrong.type_name()));
                   }));
  return value.value_or(if_absent);
}

Result<int64_t> int_field(const json& object, std::string_view key, std::string_view where,
                          std::optional<int64_t> if_absent) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> number,
                   json_field(object, key, json_integer<json>, [&](const json&) {
                     return bad_file(where,
                                     fmt::format("\"{}\" is not a whole number of 64 bits", key));
                   }));
  return value_or_missing(number, if_absent, key, where);
}

}  // namespace tandem::text
