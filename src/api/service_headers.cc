#include "api/service_headers.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>

namespace tandem::api {

namespace {

Result<std::optional<Nanos>> target_of(const HttpRequest& request, std::string_view name) {
  std::optional<Nanos> target;
  for (const auto& [header, value] : request.headers) {
    if (header != name) {
      continue;
    }
    const Result<Nanos> parsed = parse_target_millis(value);
    if (!parsed.ok()) {
      return invalid_argument(fmt::format("the header '{}': {}; leave it out for no target", name,
                                          parsed.error().message),
                              std::string(name));
    }
    if (target && *target != *parsed) {
      return invalid_argument(
          fmt::format("the header '{}' is there twice with other values; send it once", name),
          std::string(name));
    }
    target = *parsed;
  }
  return target;
}

}  // namespace

Result<ServiceClaim> claim_of_headers(const HttpRequest& request) {
  ServiceClaim claim;
  // The newer names come first and win.
  for (const std::string_view name : {"x-llm-d-slo-ttft-ms", "x-slo-ttft-ms"}) {
    ASSIGN_OR_RETURN(const std::optional<Nanos> target, target_of(request, name));
    if (target && !claim.ttft) {
      claim.ttft = TtftRule{.base = *target};
      claim.ttft_name = name;
    }
  }
  for (const std::string_view name : {"x-llm-d-slo-tpot-ms", "x-slo-tpot-ms"}) {
    ASSIGN_OR_RETURN(const std::optional<Nanos> target, target_of(request, name));
    if (target && !claim.tpot) {
      claim.tpot = *target;
      claim.tpot_name = name;
    }
  }
  return claim;
}

}  // namespace tandem::api
