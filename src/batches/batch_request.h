// What clients send to make and to list batches and files. Hostile input: every field is checked;
// errors name it. Threads: any; pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "batches/objects.h"
#include "batches/store.h"
#include "openai/generation_request.h"

namespace tandem::batches {

// The body of POST /v1/batches. Sets what it says: endpoint, input file, window, metadata; and
// `expires_at`, counted from 0.
[[nodiscard]] Result<BatchObject> parse_batch_request(std::string_view body,
                                                      const openai::JsonLimits& limits);

// The endpoint of a batch whose request was parsed.
[[nodiscard]] openai::Endpoint endpoint_of(const BatchObject& batch);

// The query of a list: "limit=2&after=batch_1". Batches have at most 100 on a page, files 10,000.
[[nodiscard]] Result<ListRange> parse_batch_range(std::string_view query);
[[nodiscard]] Result<ListRange> parse_file_range(std::string_view query);

}  // namespace tandem::batches
