// Typed, range-checked reading of the small JSON files of a model folder. Every error names the
// file and the field, what it holds and what would do. Immutable after parse; any thread.
//
// A field that is absent and a field that is null are the same thing: nullopt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::model {

// The whole of a file of at most `max_bytes`.
Result<std::string> read_text_file(const std::filesystem::path& file, int64_t max_bytes);

struct IntegerRange {
  int64_t min = 0;
  int64_t max = 0;
};

struct NumberRange {
  double min = 0.0;
  double max = 0.0;
};

class JsonFields {
 public:
  // `text` must be one JSON object, nested at most 64 deep. `name` stands in errors: "config.json".
  static Result<JsonFields> parse(std::string name, std::string_view text);
  // The fields of `object`, read from something else than JSON. Errors say names[path] in place of
  // a field's path where `names` has it.
  static JsonFields of(std::string name, nlohmann::json object,
                       std::map<std::string, std::string> names);

  [[nodiscard]] bool has(std::string_view key) const;
  [[nodiscard]] Result<std::optional<int64_t>> integer(std::string_view key,
                                                       IntegerRange range) const;
  [[nodiscard]] Result<int64_t> required_integer(std::string_view key, IntegerRange range) const;
  [[nodiscard]] Result<std::optional<double>> number(std::string_view key, NumberRange range) const;
  [[nodiscard]] Result<std::optional<bool>> boolean(std::string_view key) const;
  [[nodiscard]] Result<std::optional<std::string>> string(std::string_view key) const;
  // A single value counts as a list of one.
  [[nodiscard]] Result<std::vector<int64_t>> integers(std::string_view key,
                                                      IntegerRange range) const;
  // The same, but what does not lie in the range is left out with a line in `warnings`.
  [[nodiscard]] std::vector<int64_t> usable_integers(std::string_view key, IntegerRange range,
                                                     std::vector<std::string>& warnings) const;
  [[nodiscard]] Result<std::vector<std::string>> strings(std::string_view key) const;
  // The object at `key`; its errors name the path: "config.json: rope_scaling.factor".
  [[nodiscard]] Result<std::optional<JsonFields>> object(std::string_view key) const;

  [[nodiscard]] const nlohmann::json& json() const { return *json_; }
  // An error about `key`: "config.json: KEY: MESSAGE".
  [[nodiscard]] Error error(std::string_view key, std::string_view message) const;
  // The same for what is valid but not supported.
  [[nodiscard]] Error unsupported(std::string_view key, std::string_view message) const;

 private:
  using Names = std::map<std::string, std::string>;
  JsonFields(std::string name, std::string path, std::shared_ptr<const nlohmann::json> json);
  [[nodiscard]] const nlohmann::json* find(std::string_view key) const;
  template <class Convert>
  [[nodiscard]] auto field(std::string_view key, const Convert& convert,
                           std::string_view wanted) const;
  [[nodiscard]] Error wrong_type(std::string_view key, std::string_view wanted) const;

  std::string name_;
  std::string path_;  // "rope_scaling." inside an object
  std::shared_ptr<const nlohmann::json> json_;
  std::shared_ptr<const Names> names_;  // may be null
};

// The value of a field that a model does without: one that cannot be used is left out with a line
// in `warnings`, since whoever serves a model often cannot change its files.
template <class T>
std::optional<T> usable(const Result<std::optional<T>>& field, std::vector<std::string>& warnings) {
  if (!field.ok()) {
    warnings.push_back(field.error().message + "; ignored");
    return std::nullopt;
  }
  return *field;
}

}  // namespace tandem::model
