// A sequence while the engine knows it, and the request it belongs to. Internal to engine/.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "kv/block_hash.h"
#include "kv/kv_manager.h"
#include "request/request.h"
#include "request/sequence_state.h"

namespace tandem {

// An accepted request on its way into the engine, with what any thread can compute beforehand.
struct Arrival {
  RequestId id{};
  Request request;
  Nanos arrived{0};
  BlockHash root;
  std::vector<BlockHash> prompt_hashes;
};

// Shared by the sequences of one request.
struct RequestState {
  RequestId id{};
  Request request;
  Nanos arrived{0};
  BlockHash root;
  std::vector<TokenId> stop_ids;  // end ids of the model and the request
  uint64_t seed = 0;
};

struct LiveSequence {
  SequenceId id{};
  std::shared_ptr<RequestState> owner;
  int32_t choice = 0;
  StateMachine state;
  std::vector<TokenId> tokens;  // prompt, then output
  int32_t prompt_tokens = 0;
  int32_t computed_tokens = 0;  // leading tokens whose KV exists
  SequenceKv kv;
  std::vector<BlockHash> hashes;  // of full blocks of `tokens`
  std::vector<SequenceId> forks;  // choices to be forked off when the prompt is done
  uint64_t seed = 0;
  std::vector<LogprobInfo> prompt_scores;  // of prompt tokens 1, 2, .. as far as they are computed
  int32_t cached_tokens = 0;               // of the prompt, at first admission
  bool admitted_before = false;
  Nanos admitted{0};
  Nanos first_token{0};
  Nanos last_token{0};

  [[nodiscard]] const SamplingParams& sampling() const { return owner->request.sampling; }
  [[nodiscard]] int32_t known_tokens() const { return static_cast<int32_t>(tokens.size()); }
  [[nodiscard]] int32_t output_tokens() const { return known_tokens() - prompt_tokens; }
  // The prompt's log-probabilities are still to be reported, so every row of it must be computed.
  [[nodiscard]] bool scores_prompt() const {
    return sampling().prompt_logprobs >= 0 && output_tokens() == 0;
  }
  // What the prefix cache may be asked for.
  [[nodiscard]] std::span<const BlockHash> cacheable() const {
    return scores_prompt() ? std::span<const BlockHash>() : hashes;
  }
};

}  // namespace tandem
