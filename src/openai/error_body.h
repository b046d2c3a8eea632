// Errors as OpenAI clients expect them: status code and {"error":{message,type,param,code}}.
// Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::openai {

struct ErrorSettings {
  int overload_status = 429;  // some proxies and clients want 503 or 529
};

[[nodiscard]] int http_status(ErrorCode code, const ErrorSettings& settings);

// `code` is the machine-readable cause ("context_length_exceeded"); empty: the usual one of
// error.code.
[[nodiscard]] std::string error_body(const Error& error, std::string_view code = {});

}  // namespace tandem::openai
