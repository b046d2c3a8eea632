// Which web pages may read answers (Cross-Origin Resource Sharing). Threads: const and shared.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/http_message.h"

namespace tandem::api {

// "*" stands for all; an empty list of origins turns the headers off. Absent origins: all where
// clients need a key, else the pages of this machine, because any page may ask a server on
// localhost and only the key keeps it from reading the answers.
struct CorsOptions {
  std::optional<std::vector<std::string>> allowed_origins;
  std::vector<std::string> allowed_methods = {"*"};
  std::vector<std::string> allowed_headers = {"*"};
  bool allow_credentials = false;
};

class Cors {
 public:
  explicit Cors(CorsOptions options) : options_(std::move(options)) {}

  // The answer to a preflight request; nullopt if `request` is none.
  [[nodiscard]] std::optional<HttpResponse> preflight(const HttpRequest& request,
                                                      bool keys_required) const;
  // What is added to the answer of any other request.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> headers(const HttpRequest& request,
                                                                         bool keys_required) const;

 private:
  [[nodiscard]] bool allows_origin(std::string_view origin, bool keys_required) const;
  [[nodiscard]] bool allows_all_origins(bool keys_required) const;

  CorsOptions options_;
};

}  // namespace tandem::api
