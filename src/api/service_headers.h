// What the headers of a request say of its targets: x-llm-d-slo-ttft-ms and x-llm-d-slo-tpot-ms, or
// the older x-slo-ttft-ms and x-slo-tpot-ms, plain numbers of milliseconds. Threads: any.
#pragma once

#include "api/http_message.h"
#include "base/result.h"
#include "request/service.h"

namespace tandem::api {

// A header that is there must be sound, also where another one stands over it; errors name it.
[[nodiscard]] Result<ServiceClaim> claim_of_headers(const HttpRequest& request);

}  // namespace tandem::api
