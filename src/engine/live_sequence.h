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
#include "plan/queue_order.h"
#include "request/request.h"
#include "request/sequence_state.h"

namespace tandem {

// Shared by the sequences of one request.
struct RequestState {
  RequestId id{};
  Request request;
  Nanos arrived{0};
  BlockHash root;
  // End ids of the request and the model: the engine's, if the request has none of its own.
  std::span<const TokenId> stop_ids;
  std::vector<TokenId> own_stop_ids;
  uint64_t seed = 0;
  std::optional<Nanos> forecast_ttft;
  int32_t believed_cached = 0;
  int32_t ended_choices = 0;
  int32_t max_output_tokens = 0;  // of the choices that have ended
};

// Its first kBusyBytes hold what every step reads or writes of every running sequence. At hundreds
// of sequences the engine's time goes into cache misses, because a step's weights have evicted
// everything else; fields of the request that a step needs are therefore repeated there. `hashes`
// is the first field of the rest, which a test holds to its place.
struct alignas(64) LiveSequence : QueueEntry {
  static constexpr size_t kBusyBytes = 256;

  StateMachine state;
  bool in_executor = false;     // a token of it has entered and its leaving was not reported
  bool promised : 1 = false;    // its first token, by admission
  bool waits : 1 = false;       // it is in the queue
  int32_t computed_tokens = 0;  // leading tokens whose KV exists
  int32_t max_tokens = 0;       // of the request
  int32_t min_tokens = 0;
  int32_t prompt_logprobs = -1;
  Nanos first_token{0};
  Nanos last_token{0};
  Nanos most_gap{0};  // between two of its tokens
  Nanos tpot_target = Nanos::max();
  uint64_t seed = 0;
  std::vector<TokenId> tokens;  // prompt, then output
  SequenceKv kv;
  std::span<const TokenId> stop_ids;  // the request's
  std::shared_ptr<RequestState> owner;
  TokenSink* sink = nullptr;  // the request's, may be null
  uint64_t sink_tag = 0;

  std::vector<BlockHash> hashes;  // of full blocks of `tokens`
  std::vector<SequenceId> forks;  // choices to be forked off when the prompt is done
  int64_t admission = 0;          // increases with each admission
  // What the executor still holds of it, beside in_executor. Until it holds nothing, the blocks of
  // the sequence are not freed.
  int64_t transfer = 0;     // the copy under way; 0: none
  bool leaving = false;     // the executor was told to let it go
  uint8_t lane = 0;         // of its token in the executor
  bool comes_back = false;  // the host failed its token: its KV goes back to the accelerator
  // The fetch of its cached prefix from the host, since it was last queued.
  enum class Fetched : uint8_t { kNo, kUnderWay, kOnce } fetched = Fetched::kNo;
  int32_t host_failures = 0;   // times that the host could not compute a token of it
  int32_t held_plans = 0;      // in a row, that have kept its next token from entering
  int32_t written_blocks = 0;  // leading blocks whose copy to the host was started beforehand
  std::vector<LogprobInfo> prompt_scores;  // of prompt tokens 1, 2, .. as far as they are computed
  int32_t cached_tokens = 0;               // of the prompt, at first admission
  bool admitted_before = false;
  Nanos admitted{0};
  int32_t preemptions = 0;            // times that its KV was dropped
  int32_t host_tokens = 0;            // output tokens that came from the host tier
  Nanos parked{0};                    // that its KV was on the host, up to parked_since
  std::optional<Nanos> parked_since;  // its KV is on the host

  // Nanos::max() before the first token, and without a target.
  [[nodiscard]] Nanos next_token_due() const {
    const int64_t made = output_tokens();
    return made == 0 || tpot_target == Nanos::max() ||
                   tpot_target > (Nanos::max() - first_token) / made
               ? Nanos::max()
               : first_token + tpot_target * made;
  }

  // Takes over what is the request's.
  void set_owner(std::shared_ptr<RequestState> state_of_request) {
    owner = std::move(state_of_request);
    service_class = owner->request.service_class;
    level = owner->request.level;
    arrived = owner->arrived;
    const Slo& slo = owner->request.slo;
    if (slo.ttft.has_value()) {
      first_token_due = due_at(arrived, slo.ttft->target(std::ssize(owner->request.prompt)));
    }
    promised = owner->forecast_ttft.has_value();
    tpot_target = slo.tpot.value_or(Nanos::max());
    max_tokens = sampling().max_tokens;
    min_tokens = sampling().min_tokens;
    prompt_logprobs = sampling().prompt_logprobs;
    stop_ids = owner->stop_ids;
    sink = owner->request.sink.get();
    sink_tag = owner->request.sink_tag;
    request = owner->id;
  }
  [[nodiscard]] const SamplingParams& sampling() const { return owner->request.sampling; }
  [[nodiscard]] int32_t known_tokens() const { return static_cast<int32_t>(tokens.size()); }
  [[nodiscard]] int32_t output_tokens() const { return known_tokens() - prompt_tokens; }
  // The prompt's log-probabilities are still to be reported, so every row of it must be computed.
  [[nodiscard]] bool scores_prompt() const { return prompt_logprobs >= 0 && output_tokens() == 0; }
  // Its KV is complete but for the last token, so it can decode wherever its KV is.
  [[nodiscard]] bool decodes() const {
    return output_tokens() > 0 && known_tokens() - computed_tokens == 1;
  }
  [[nodiscard]] bool in_flight() const { return transfer != 0 || in_executor; }
  // The block hashes to look up in the prefix cache.
  [[nodiscard]] std::span<const BlockHash> cacheable() const {
    return scores_prompt() ? std::span<const BlockHash>() : hashes;
  }
};

}  // namespace tandem
