// A request as JSON in record files, and back. Exact: what is read equals what was written.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "request/request.h"

namespace tandem {

nlohmann::json request_to_json(const Request& request);
// Errors name the field.
Result<Request> request_from_json(const nlohmann::json& json);

}  // namespace tandem
