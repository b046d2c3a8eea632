// Reads the JSON body of a request and its typed fields. Bodies are hostile: size is the HTTP
// server's limit; depth, keys per object, UTF-8 and number ranges are checked here. Null counts as
// absent; unknown fields are ignored. Errors name the field, what it must be and what it
// is. Threads: any. A FieldReader borrows its object.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::openai {

using Json = nlohmann::ordered_json;  // ordered: templates print tools in the client's order

struct JsonLimits {
  int32_t max_depth = 64;
  int32_t max_object_keys = 4096;  // finding a key takes time in proportion to their number
  int32_t max_values = 4'000'000;  // lists and objects included; one takes dozens of bytes
};

// Needs nothing; the body must be one JSON object. Takes time in proportion to the body, whatever
// it holds. A key that stands twice in an object has its first place and its last value. Errors
// call the text `subject`.
[[nodiscard]] Result<Json> parse_object(std::string_view body, const JsonLimits& limits,
                                        std::string_view subject = "the request body");

struct NumberRange {
  double low = -std::numeric_limits<double>::max();
  double high = std::numeric_limits<double>::max();
};

class FieldReader {
 public:
  // `object` must be an object; `prefix` ("stream_options.") is put before names in errors.
  explicit FieldReader(const Json& object, std::string_view prefix = {});

  [[nodiscard]] const Json* find(std::string_view name) const;  // nullptr: absent or null
  [[nodiscard]] Result<std::optional<bool>> boolean(std::string_view name) const;
  [[nodiscard]] Result<std::optional<int64_t>> integer(std::string_view name, int64_t low,
                                                       int64_t high) const;
  [[nodiscard]] Result<std::optional<float>> number(std::string_view name, NumberRange range) const;
  [[nodiscard]] Result<std::optional<std::string>> string(std::string_view name) const;
  [[nodiscard]] Result<const Json*> array(std::string_view name) const;   // nullptr: absent
  [[nodiscard]] Result<const Json*> object(std::string_view name) const;  // nullptr: absent

  // "'name' must be <what>, not <the value's type or number>".
  [[nodiscard]] Error wrong(std::string_view name, std::string_view what, const Json& value) const;
  [[nodiscard]] std::string full_name(std::string_view name) const;

 private:
  template <class Convert, class What>
  [[nodiscard]] auto field(std::string_view name, const Convert& convert, const What& what) const;

  const Json& object_;
  std::string prefix_;
};

// The value as an integer of low .. high; 5.0 counts, 5.5, true and "5" do not.
[[nodiscard]] std::optional<int64_t> as_integer(const Json& value, int64_t low, int64_t high);
// "the string \"abc\"" shortened, "the number 7", "a list".
[[nodiscard]] std::string describe(const Json& value);
// As describe(), but a string without the words: "\"abc\"".
[[nodiscard]] std::string quoted(const Json& value);

}  // namespace tandem::openai
