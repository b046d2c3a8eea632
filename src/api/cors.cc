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

// "http://localhost:3000", "https://app.localhost", "http://127.0.0.1", "http://[::1]:8080". Not
// "null": any page can make a frame with that origin.
bool is_of_this_machine(std::string_view origin) {
  const size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos) {
    return false;
  }
  std::string_view host = origin.substr(scheme + 3);
  if (host == "[::1]" || host.starts_with("[::1]:")) {
    return true;
  }
  host = host.substr(0, host.find(':'));
  const bool loopback =
      host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos;
  return host == "localhost" || host.ends_with(".localhost") || loopback;
}

constexpr std::string_view kAllMethods = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT";
// Headers of answers that browsers show to a page only if they are listed. Clients of OpenAI's API
// read them. "*" would not do where credentials are allowed.
constexpr std::string_view kExposedHeaders =
    "Retry-After, retry-after-ms, x-should-retry, x-llm-d-request-dropped-reason, X-Request-Id, "
    "X-Correlation-ID";

}  // namespace

bool Cors::allows_all_origins(bool keys_required) const {
  return options_.allowed_origins ? lists(*options_.allowed_origins, "*") : keys_required;
}

bool Cors::allows_origin(std::string_view origin, bool keys_required) const {
  if (allows_all_origins(keys_required)) {
    return true;
  }
  return options_.allowed_origins ? lists(*options_.allowed_origins, origin)
                                  : is_of_this_machine(origin);
}

std::vector<std::pair<std::string, std::string>> Cors::headers(const HttpRequest& request,
                                                               bool keys_required) const {
  std::vector<std::pair<std::string, std::string>> out;
  const std::string_view origin = request.header("origin");
  if (origin.empty() || !allows_origin(origin, keys_required)) {
    return out;
  }
  const bool credentials = options_.allow_credentials;
  if (allows_all_origins(keys_required) && !credentials) {
    out.emplace_back("Access-Control-Allow-Origin", "*");
  } else {
    out.emplace_back("Access-Control-Allow-Origin", origin);
    out.emplace_back("Vary", "Origin");
  }
  out.emplace_back("Access-Control-Expose-Headers", kExposedHeaders);
  if (credentials) {
    out.emplace_back("Access-Control-Allow-Credentials", "true");
  }
  return out;
}

std::optional<HttpResponse> Cors::preflight(const HttpRequest& request, bool keys_required) const {
  const std::string_view origin = request.header("origin");
  const std::string_view method = request.header("access-control-request-method");
  const bool off = options_.allowed_origins && options_.allowed_origins->empty();
  if (off || request.method != "OPTIONS" || origin.empty() || method.empty()) {
    return std::nullopt;
  }
  HttpResponse response;
  response.content_type = "text/plain; charset=utf-8";
  if (!allows_origin(origin, keys_required)) {
    response.status = 400;
    response.body = options_.allowed_origins
                        ? "this origin is not allowed; the server's --allowed-origins names others"
                        : "this origin is not allowed: a server without API keys answers pages of "
                          "its own machine only; give it --api-key or --allowed-origins";
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
