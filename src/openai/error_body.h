// Errors as OpenAI clients expect them: status code and {"error":{message,type,param,code}}.
// Threads: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace tandem::openai {

struct ErrorSettings {
  int overload_status = 429;  // some proxies and clients want 503 or 529
};

[[nodiscard]] int http_status(ErrorCode code, const ErrorSettings& settings);

// What a refused request may know: times to come, by the server's forecast.
struct ErrorForecast {
  std::optional<Nanos> ttft;
  std::optional<Nanos> ttft_target;
  std::optional<Nanos> retry_after;
  [[nodiscard]] bool empty() const { return !ttft && !ttft_target && !retry_after; }
};

// `code` is the machine-readable cause ("context_length_exceeded"); empty: the usual one of
// error.code.
[[nodiscard]] std::string error_body(const Error& error, std::string_view code = {},
                                     const ErrorForecast& forecast = {});

}  // namespace tandem::openai
