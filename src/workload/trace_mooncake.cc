// Mooncake's format: one JSON object a line.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/json_values.h"
#include "workload/lengths.h"
#include "workload/trace_rows.h"

namespace tandem::workload {

namespace {

using Json = nlohmann::json;

constexpr size_t kMostLineBytes = size_t{16} << 20;

// A line is an object of numbers and lists; hostile nesting never reaches the parser.
bool is_flat(std::string_view line) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < line.size() && depth <= 2; ++i) {
    const char c = line[i];
    if (in_string) {
      i += c == '\\' ? 1 : 0;
      in_string = c != '"';
    } else {
      in_string = c == '"';
      depth += c == '{' || c == '[' ? 1 : 0;
      depth -= c == '}' || c == ']' ? 1 : 0;
    }
  }
  return depth <= 2;
}

Result<int64_t> integer(const Json& object, const char* name, int64_t most, const Place& place) {
  const Json* found = json_member(object, name);
  const std::optional<int64_t> number = found == nullptr ? std::nullopt : json_integer(*found);
  if (!number || *number < 0 || *number > most) {
    return trace_error(
        place, fmt::format("{} is {}, not a whole number up to {}", name,
                           found == nullptr
                               ? "missing"
                               : shown(found->dump(-1, ' ', false, Json::error_handler_t::replace)),
                           most));
  }
  return *number;
}

Status read_row(const Json& object, int32_t block_tokens, const Place& place, TraceRow& row) {
  const Json* time = json_member(object, "timestamp");
  const double millis = time == nullptr ? -1 : json_number(*time).value_or(-1);
  if (!(millis >= 0 && millis <= kLongestTrace_s * 1e3)) {
    return trace_error(place, "timestamp is not a number of milliseconds");
  }
  row.at = nanos_of(millis / 1e3);
  ASSIGN_OR_RETURN(const int64_t input, integer(object, "input_length", kMostTokens, place));
  ASSIGN_OR_RETURN(const int64_t output, integer(object, "output_length", kMostTokens, place));
  row.input_tokens = static_cast<int32_t>(input);
  row.output_tokens = static_cast<int32_t>(output);
  const auto ids = object.find("hash_ids");
  if (ids == object.end()) {
    return {};
  }
  if (!ids->is_array()) {
    return trace_error(place, "hash_ids is not a list");
  }
  for (const Json& id : *ids) {
    const std::optional<int64_t> number = json_integer(id);
    if (!number || *number < 0) {
      return trace_error(place, "hash_ids holds something else than whole numbers");
    }
    row.hash_ids.push_back(*number);
  }
  return check_hash_ids(row, block_tokens, place);
}

}  // namespace

Status read_mooncake(std::string_view text, std::string_view file, int32_t block_tokens,
                     Trace& trace) {
  Lines lines(text);
  std::string_view line;
  while (lines.next(line)) {
    const Place place{file, lines.number()};
    if (line.empty()) {
      continue;
    }
    if (line.size() > kMostLineBytes || !is_flat(line)) {
      return trace_error(place, "the line is not a flat JSON object of reasonable length");
    }
    const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) {
      return trace_error(place, fmt::format("'{}' is no JSON object", shown(line)));
    }
    TraceRow row;
    RETURN_IF_ERROR(read_row(object, block_tokens, place, row));
    if (row.input_tokens == 0 || row.output_tokens == 0) {
      ++trace.skipped_rows;
    } else {
      trace.rows.push_back(std::move(row));
    }
  }
  return {};
}

}  // namespace tandem::workload
