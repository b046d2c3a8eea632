// Reads JSON files of a model folder and fields of their objects, with errors that name file,
// field, cause and cure. Not here: what the fields mean. Threads: any; pure functions. The files
// are not trusted: size and nesting are bounded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::text {

// The bytes of a regular file of at most `limit_bytes`.
Result<std::string> read_file(const std::filesystem::path& path, int64_t limit_bytes);

// A JSON file whose outermost value is an object.
Result<nlohmann::json> read_json_object(const std::filesystem::path& path, int64_t limit_bytes);

// The member `key` of `object`, or nullptr where it is absent or null. Needs an object.
const nlohmann::json* find_field(const nlohmann::json& object, std::string_view key);

// `where` names the file and the place of `object` in it. Absent and null are the same and give the
// default, or an error where there is none.
Result<std::string> string_field(const nlohmann::json& object, std::string_view key,
                                 std::string_view where,
                                 const std::optional<std::string>& if_absent = std::nullopt);
Result<bool> bool_field(const nlohmann::json& object, std::string_view key, std::string_view where,
                        bool if_absent);
Result<int64_t> int_field(const nlohmann::json& object, std::string_view key,
                          std::string_view where, std::optional<int64_t> if_absent = std::nullopt);

// "file: model.vocab" + what is wrong.
Error bad_file(std::string_view where, std::string_view cause);
Error unsupported(std::string_view where, std::string_view what);

}  // namespace tandem::text
