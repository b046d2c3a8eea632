// A request as JSON in record files, and back. Exact: what is read equals what was written.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "request/request.h"

namespace tandem {

nlohmann::json request_to_json(const Request& request);
// Errors name the field.
Result<Request> request_from_json(const nlohmann::json& json);

// A whole number of low to high; the library alone would cut what does not fit without a word, and
// a number with a fraction or exponent beyond the type is undefined there. Throws
// nlohmann::json::exception where there is no such key.
Result<int64_t> record_integer(const nlohmann::json& in, const char* key, int64_t low,
                               int64_t high);
// The field "seed": any 64 bits. Throws as record_integer does.
Result<uint64_t> record_seed(const nlohmann::json& in);

}  // namespace tandem
