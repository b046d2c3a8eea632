// Between JSON and template values: what a template is given, and the tojson filter (Python's
// json.dumps).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "jinja/value.h"

namespace tandem::jinja {

// Keeps the order of keys. Fails on nesting past kMaxValueDepth and on text that is not UTF-8.
Value from_json(const nlohmann::ordered_json& json, Work& work);

struct JsonFormat {
  std::optional<std::string> indent;  // absent: all on one line
  std::string item_separator = ", ";  // with an indent: ","
  std::string key_separator = ": ";
  bool ascii_only = false;
  bool sort_keys = false;
};

// Fails on values that JSON has no form for (undefined, namespaces, generators).
std::string to_json(const Value& value, const JsonFormat& format, Work& work);

}  // namespace tandem::jinja
