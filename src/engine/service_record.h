// How a sequence was served, for the observer and for a client that asks. Internal to engine/.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "engine/live_sequence.h"
#include "observe/records.h"
#include "request/request.h"

namespace tandem {

// The record of a sequence that ends now, to be made once per sequence: it counts the request's
// ended choices.
observe::RequestRecord record_of_end(const LiveSequence& sequence, FinishReason reason, Nanos now);

// `hops_per_token`: of a token that is decoded on the host.
std::unique_ptr<ServiceReport> make_report(const LiveSequence& sequence, int32_t hops_per_token);

}  // namespace tandem
