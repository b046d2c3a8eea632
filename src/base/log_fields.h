// Log lines with named values, and the form of the log for machines: one JSON object a line with
// "time" (UTC), "level", "message" and the line's values. Any thread, start() before others start.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace tandem::log {

enum class Format : uint8_t { kText, kJson };

// "text" or "json".
Result<Format> parse_format(std::string_view name);

// As start(level) in base/log.h, in the format asked for.
Status start(std::string_view level, Format format);

// Text that is JSON already, such as an object.
struct RawJson {
  std::string text;
};

struct Field {
  std::string_view name;  // of letters, digits and underscores; not time, level or message
  std::variant<std::string, int64_t, double, RawJson> value;  // double: printed to one decimal
};
using Fields = std::vector<Field>;

// " name=value name=value".
std::string text_of(const Fields& fields);

// Level info. In text the line is `message`, which says what the fields say; in JSON `message` and
// the fields.
void info_fields(std::string_view message, const Fields& fields);

// Whether lines are JSON: for lines whose text has no use beside their fields.
bool is_json();

}  // namespace tandem::log
