#include "api/cors.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace tandem::api {

namespace {

bool lists(const std::vector<std::string>& list, std::string_view value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool allows(const std::vector<std::string>& list, std::string_view value) {
  return lists(list, "*") || lists(list, value);
}

constexpr std::string_view kAllMethods = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT";

}  // namespace

std::vector<std::pair<std::string, std::string>> Cors::headers(const HttpRequest& request) const {
  std::vector<std::pair<std::string, std::string>> out;
  const std::string_view origin = request.header("origin");
  if (origin.empty() || !allows(options_.allowed_origins, origin)) {
    return out;
  }
  const bool credentials = options_.credentials == CorsCredentials::kAllowed;
  if (lists(options_.allowed_origins, "*") && !credentials) {
    out.emplace_back("Access-Control-Allow-Origin", "*");
  } else {
    out.emplace_back("Access-Control-Allow-Origin", origin);
    out.emplace_back("Vary", "Origin");
  }
  if (credentials) {
    out.emplace_back("Access-Control-Allow-Credentials", "true");
  }
  return out;
}

std::optional<HttpResponse> Cors::preflight(const HttpRequest& request) const {
  const std::string_view origin = request.header("origin");
  const std::string_view method = request.header("access-control-request-method");
  if (options_.allowed_origins.empty() || request.method != "OPTIONS" || origin.empty() ||
      method.empty()) {
    return std::nullopt;
  }
  HttpResponse response;
  response.content_type = "text/plain; charset=utf-8";
  if (!allows(options_.allowed_origins, origin)) {
    response.status = 400;
    response.body = "this origin is not allowed";
    return response;
  }
  if (!allows(options_.allowed_methods, method)) {
    response.status = 400;
    response.body = "this method is not allowed";
    return response;
  }
  response.headers.emplace_back("Access-Control-Allow-Methods",
                                lists(options_.allowed_methods, "*")
                                    ? std::string(kAllMethods)
                                    : fmt::format("{}", fmt::join(options_.allowed_methods, ", ")));
  const std::string_view asked = request.header("access-control-request-headers");
  if (lists(options_.allowed_headers, "*")) {
    if (!asked.empty()) {
      response.headers.emplace_back("Access-Control-Allow-Headers", asked);
    }
  } else {
    response.headers.emplace_back("Access-Control-Allow-Headers",
                                  fmt::format("{}", fmt::join(options_.allowed_headers, ", ")));
  }
  response.headers.emplace_back("Access-Control-Max-Age", "600");
  response.body = "OK";
  return response;
}

}  // namespace tandem::api
