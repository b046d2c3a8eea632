// The names a request goes by and its line in the log. Never logs prompts, keys, or the query of a
// URL. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/http_message.h"
#include "base/clock.h"
#include "base/log_fields.h"

namespace tandem::api {

struct RequestNames {
  std::string
      request_id;  // the client's X-Request-Id if it is short and printable, or else `generated`
  std::string correlation_id;  // X-Correlation-ID likewise, or empty
  std::string trace_id;        // of a W3C traceparent, or empty
};
[[nodiscard]] RequestNames names_of(const HttpRequest& request, std::string generated);

struct AccessRecord {
  std::string_view method;
  std::string_view path;
  std::string_view outcome = "done";  // done, failed, disconnected, slow_reader
  std::string_view client;            // its address
  int status = 0;
  Nanos duration{0};
  std::optional<int64_t> prompt_tokens;
  std::optional<int64_t> completion_tokens;
};
[[nodiscard]] log::Fields access_fields(const AccessRecord& record, const RequestNames& names);
// "access" and the fields.
[[nodiscard]] std::string access_line(const log::Fields& fields);

}  // namespace tandem::api
