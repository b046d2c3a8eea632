// What the body of a request says of its service: class, level, targets, and whether it wants to be
// told how it was served. Threads: any.
#pragma once

#include <string_view>

#include "base/result.h"
#include "openai/json_input.h"
#include "request/service.h"

namespace tandem::openai {

// service_tier, priority and slo.
[[nodiscard]] Result<ServiceClaim> parse_service_claim(const FieldReader& fields);

// tandem.explain.
[[nodiscard]] Result<bool> parse_explain(const FieldReader& fields);

// The service_tier of the answer: flex for best effort; for latency sensitive priority where that
// was claimed or is not the server's own class, else default.
[[nodiscard]] std::string_view tier_used(const ServiceClaim& claim, const ServiceTerms& terms,
                                         const ServiceDefaults& defaults);

}  // namespace tandem::openai
