// What reaches an engine from outside: requests, cancellations and stops. Plain data; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "kv/block_hash.h"
#include "request/request.h"

namespace tandem {

// An accepted request on its way into the engine, with what any thread can compute beforehand.
struct Arrival {
  RequestId id{};
  Request request;
  Nanos arrived{0};
  BlockHash root;
  std::vector<BlockHash> prompt_hashes;
  // The verdict of admission, if it was asked and accepted the request.
  std::optional<Nanos> forecast_ttft;
  int32_t believed_cached = 0;  // tokens of the prompt that it expected in the prefix cache
};

struct EngineCancel {
  RequestId request{};
};

// Ends one choice of a request, which then finishes with kStop.
struct EngineStop {
  RequestId request{};
  int32_t choice = 0;
};

using EngineInput = std::variant<Arrival, EngineCancel, EngineStop>;
using EngineInputs = std::vector<EngineInput>;

}  // namespace tandem
