// Which web pages may read answers (Cross-Origin Resource Sharing). Threads: const and shared.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/http_message.h"

namespace tandem::api {

enum class CorsCredentials { kForbidden, kAllowed };

// "*" stands for all; an empty list of origins turns the headers off.
struct CorsOptions {
  std::vector<std::string> allowed_origins = {"*"};
  std::vector<std::string> allowed_methods = {"*"};
  std::vector<std::string> allowed_headers = {"*"};
  CorsCredentials credentials = CorsCredentials::kForbidden;
};

class Cors {
 public:
  explicit Cors(CorsOptions options) : options_(std::move(options)) {}

  // The answer to a preflight request; nullopt if `request` is none.
  [[nodiscard]] std::optional<HttpResponse> preflight(const HttpRequest& request) const;
  // What is added to the answer of any other request.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> headers(
      const HttpRequest& request) const;

 private:
  CorsOptions options_;
};

}  // namespace tandem::api
