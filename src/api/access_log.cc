#include "api/access_log.h"

#include <algorithm>
#include <utility>

namespace tandem::api {

namespace {

constexpr size_t kMaxIdBytes = 128;
constexpr size_t kMaxPathBytes = 200;

bool is_plain(char c) { return c > ' ' && c < 0x7F && c != '"' && c != '\\'; }

bool is_plain_id(std::string_view text) {
  return !text.empty() && text.size() <= kMaxIdBytes && std::ranges::all_of(text, is_plain);
}

bool is_lower_hex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// version "-" trace id (32 digits, not all 0) "-" parent id (16) "-" flags (2)
std::string_view trace_id_of(std::string_view traceparent) {
  constexpr size_t kLength = 55;
  if (traceparent.size() < kLength || traceparent[2] != '-' || traceparent[35] != '-' ||
      traceparent[52] != '-' || !is_lower_hex(traceparent.substr(0, 2)) ||
      traceparent.starts_with("ff")) {
    return {};
  }
  const std::string_view trace_id = traceparent.substr(3, 32);
  const bool valid = is_lower_hex(trace_id) && trace_id.find_first_not_of('0') != trace_id.npos &&
                     is_lower_hex(traceparent.substr(36, 16));
  return valid ? trace_id : std::string_view();
}

// One word of the log, whatever the client sent.
std::string plain_word(std::string_view text) {
  std::string word(text.substr(0, kMaxPathBytes));
  std::ranges::replace_if(
      word, [](char c) { return !is_plain(c); }, '?');
  return word;
}

}  // namespace

RequestNames names_of(const HttpRequest& request, std::string generated) {
  RequestNames names;
  const std::string_view request_id = request.header("x-request-id");
  names.request_id = is_plain_id(request_id) ? std::string(request_id) : std::move(generated);
  const std::string_view correlation_id = request.header("x-correlation-id");
  if (is_plain_id(correlation_id)) {
    names.correlation_id = correlation_id;
  }
  names.trace_id = trace_id_of(request.header("traceparent"));
  return names;
}

log::Fields access_fields(const AccessRecord& record, const RequestNames& names) {
  log::Fields fields = {{"method", plain_word(record.method)},
                        {"path", plain_word(record.path)},
                        {"status", int64_t{record.status}},
                        {"outcome", std::string(record.outcome)},
                        {"duration_ms", to_millis(record.duration)},
                        {"client", std::string(record.client)},
                        {"request_id", names.request_id}};
  if (!names.correlation_id.empty()) {
    fields.push_back({"correlation_id", names.correlation_id});
  }
  if (!names.trace_id.empty()) {
    fields.push_back({"trace_id", names.trace_id});
  }
  if (record.prompt_tokens) {
    fields.push_back({"prompt_tokens", *record.prompt_tokens});
  }
  if (record.completion_tokens) {
    fields.push_back({"completion_tokens", *record.completion_tokens});
  }
  return fields;
}

std::string access_line(const log::Fields& fields) { return "access" + log::text_of(fields); }

}  // namespace tandem::api
