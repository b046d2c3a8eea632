#include "openai/error_body.h"

#include <fmt/format.h>

#include <iterator>

#include "openai/json_output.h"

namespace tandem::openai {

namespace {

struct Names {
  std::string_view type;
  std::string_view code;  // empty: null
};

Names names_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return {"invalid_request_error", ""};
    case ErrorCode::kUnauthenticated:
      return {"authentication_error", "invalid_api_key"};
    case ErrorCode::kForbidden:
      return {"permission_error", "forbidden"};
    case ErrorCode::kNotFound:
      return {"invalid_request_error", "not_found"};
    case ErrorCode::kPayloadTooLarge:
      return {"invalid_request_error", "payload_too_large"};
    case ErrorCode::kOverloaded:
      return {"rate_limit_error", "overloaded"};
    case ErrorCode::kUnavailable:
      return {"service_unavailable_error", "service_unavailable"};
    case ErrorCode::kResourceExhausted:
      return {"service_unavailable_error", "resource_exhausted"};
    case ErrorCode::kUnsupported:
      return {"invalid_request_error", "unsupported"};
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      break;
  }
  return {"server_error", "internal_error"};
}

// ,"forecast":{"ttft_ms":...}; nothing where nothing is known.
void append_forecast(std::string& out, const ErrorForecast& forecast) {
  if (forecast.empty()) {
    return;
  }
  out += R"(,"forecast":{)";
  std::string_view comma;
  const auto append = [&](std::string_view name, const std::optional<Nanos>& time) {
    if (time) {
      fmt::format_to(std::back_inserter(out), R"({}"{}":{:.3f})", comma, name, to_millis(*time));
      comma = ",";
    }
  };
  append("ttft_ms", forecast.ttft);
  append("ttft_target_ms", forecast.ttft_target);
  append("retry_after_ms", forecast.retry_after);
  out += '}';
}

}  // namespace

int http_status(ErrorCode code, const ErrorSettings& settings) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
      return 400;
    case ErrorCode::kUnauthenticated:
      return 401;
    case ErrorCode::kForbidden:
      return 403;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kPayloadTooLarge:
      return 413;
    case ErrorCode::kOverloaded:
      return settings.overload_status;
    case ErrorCode::kUnavailable:
    case ErrorCode::kResourceExhausted:
      return 503;
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      break;
  }
  return 500;
}

std::string error_body(const Error& error, std::string_view code, const ErrorForecast& forecast) {
  const Names names = names_of(error.code);
  const std::string_view shown_code = code.empty() ? names.code : code;
  std::string out = R"({"error":{"message":)";
  append_untrusted_string(out, error.message);
  out += R"(,"type":)";
  append_string(out, names.type);
  out += R"(,"param":)";
  if (error.param.empty()) {
    out += "null";
  } else {
    append_untrusted_string(out, error.param);
  }
  out += R"(,"code":)";
  if (shown_code.empty()) {
    out += "null";
  } else {
    append_string(out, shown_code);
  }
  append_forecast(out, forecast);
  out += "}}";
  return out;
}

}  // namespace tandem::openai
