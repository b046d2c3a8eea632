#include "batches/batch_request.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/percent_encoding.h"
#include "openai/json_input.h"

namespace tandem::batches {
namespace {

constexpr std::string_view kChatPath = "/v1/chat/completions";
constexpr std::string_view kCompletionsPath = "/v1/completions";
constexpr int64_t kHour = 3600;

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

// "24h" and "7d", of 1 hour to 7 days.
Result<int64_t> window_seconds(std::string_view window) {
  constexpr int64_t kMaxHours = 7 * 24;
  const char unit = window.empty() ? '\0' : window.back();
  const std::optional<int64_t> count =
      window.empty() ? std::nullopt : whole_number(window.substr(0, window.size() - 1));
  const int64_t hours_of_unit = unit == 'h' ? 1 : unit == 'd' ? 24 : 0;
  if (!count || hours_of_unit == 0 || *count < 1 || *count > kMaxHours / hours_of_unit) {
    return invalid_argument(
        fmt::format("'completion_window' must be 1h to 7d, such as \"24h\", not \"{}\"",
                    shown(window)),
        "completion_window");
  }
  return *count * hours_of_unit * kHour;
}

Status read_metadata(const openai::FieldReader& fields, BatchObject& batch) {
  constexpr size_t kMaxPairs = 16;
  constexpr size_t kMaxName = 64;
  constexpr size_t kMaxValue = 512;
  ASSIGN_OR_RETURN(const openai::Json* metadata, fields.object("metadata"));
  if (metadata == nullptr) {
    return {};
  }
  for (const auto& item : metadata->items()) {
    const bool fits = item.value().is_string() && item.key().size() <= kMaxName &&
                      item.value().get_ref<const std::string&>().size() <= kMaxValue;
    if (!fits || metadata->size() > kMaxPairs) {
      return invalid_argument(
          fmt::format("'metadata' may have {} pairs of texts, names of up to {} bytes and values "
                      "of up to {}",
                      kMaxPairs, kMaxName, kMaxValue),
          "metadata");
    }
    batch.metadata.emplace_back(item.key(), item.value().get<std::string>());
  }
  return {};
}

Status read_expiry(const openai::FieldReader& fields, BatchObject& batch) {
  constexpr int64_t kMaxSeconds = 30 * 24 * kHour;
  ASSIGN_OR_RETURN(const openai::Json* after, fields.object("output_expires_after"));
  if (after == nullptr) {
    return {};
  }
  const openai::FieldReader inner(*after, "output_expires_after.");
  ASSIGN_OR_RETURN(const auto anchor, inner.string("anchor"));
  ASSIGN_OR_RETURN(batch.output_expires_after, inner.integer("seconds", kHour, kMaxSeconds));
  if (anchor != "created_at" || !batch.output_expires_after) {
    return invalid_argument(
        "'output_expires_after' needs \"anchor\": \"created_at\" and \"seconds\"",
        "output_expires_after");
  }
  return {};
}

Result<ListRange> parse_range(std::string_view query, ListRange range, int64_t max_limit) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    const size_t equals = std::min(pair.find('='), pair.size());
    const std::string_view name = pair.substr(0, equals);
    const std::string value =
        equals < pair.size() ? query_decode(pair.substr(equals + 1)) : std::string();
    if (name == "after") {
      range.after = value;
    } else if (name == "purpose") {
      range.purpose = value;
    } else if (name == "limit") {
      const std::optional<int64_t> limit = whole_number(value);
      if (!limit || *limit < 1 || *limit > max_limit) {
        return invalid_argument(fmt::format("'limit' must be 1 to {}", max_limit), "limit");
      }
      range.limit = *limit;
    } else if (name == "order") {
      if (value != "asc" && value != "desc") {
        return invalid_argument("'order' must be asc or desc", "order");
      }
      range.oldest_first = value == "asc";
    }
  }
  return range;
}

}  // namespace

Result<BatchObject> parse_batch_request(std::string_view body, const openai::JsonLimits& limits) {
  ASSIGN_OR_RETURN(const openai::Json json, openai::parse_object(body, limits));
  const openai::FieldReader fields(json);
  BatchObject batch;
  ASSIGN_OR_RETURN(const auto endpoint, fields.string("endpoint"));
  batch.endpoint = endpoint.value_or("");
  if (batch.endpoint != kChatPath && batch.endpoint != kCompletionsPath) {
    return invalid_argument(fmt::format("'endpoint' must be {} or {}; it is the 'url' of all lines",
                                        kChatPath, kCompletionsPath),
                            "endpoint");
  }
  ASSIGN_OR_RETURN(const auto input, fields.string("input_file_id"));
  batch.input_file_id = input.value_or("");
  if (!is_object_id(batch.input_file_id)) {
    return invalid_argument("'input_file_id' must be the id of an uploaded file", "input_file_id");
  }
  ASSIGN_OR_RETURN(const auto window, fields.string("completion_window"));
  batch.completion_window = window.value_or("");
  ASSIGN_OR_RETURN(batch.expires_at, window_seconds(batch.completion_window));
  RETURN_IF_ERROR(read_metadata(fields, batch));
  RETURN_IF_ERROR(read_expiry(fields, batch));
  return batch;
}

openai::Endpoint endpoint_of(const BatchObject& batch) {
  return batch.endpoint == kChatPath ? openai::Endpoint::kChat : openai::Endpoint::kCompletions;
}

Result<ListRange> parse_batch_range(std::string_view query) {
  constexpr int64_t kMaxBatches = 100;
  return parse_range(query, {}, kMaxBatches);
}

Result<ListRange> parse_file_range(std::string_view query) {
  constexpr int64_t kMaxFiles = 10'000;
  return parse_range(query, {.limit = kMaxFiles}, kMaxFiles);
}

}  // namespace tandem::batches
