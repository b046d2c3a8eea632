// Whether a latency-sensitive (LS) request is let in: decided when it arrives, before anything is
// said to its client (OmniServe 3.3.3). Best effort is always queued.
//
// A view is what the decision needs of the engine: made when somebody asks, and again after the
// engine has gone on. Plain data; spans live as long as the call.
//
// Threads: the engine makes views and asks; whoever calls it sees to it that the engine does not go
// on meanwhile. Errors: none; a refusal is an ordinary answer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "base/prompt_rest.h"
#include "request/slo.h"

namespace tandem {

// A request that asks to be let in. Targets are from its arrival; Nanos::max(): none.
struct AdmissionAsk {
  ServiceClass service_class = ServiceClass::kLatencySensitive;
  int32_t level = 0;
  Nanos arrived{0};
  Nanos ttft = Nanos::max();
  Nanos tpot = Nanos::max();
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // of these, that the prefix cache holds now; fewer than all
  int32_t choices = 1;
  int32_t max_tokens = 0;  // output of each choice, at most

  [[nodiscard]] PromptRest rest() const {
    return {cached_tokens, prompt_tokens - cached_tokens, choices};
  }
};

// An LS sequence that decodes once the step in flight is done, wherever its KV is.
struct AdmittedDecode {
  int32_t known_tokens = 0;
  int32_t output_tokens = 0;  // of these
  int32_t max_tokens = 0;     // output at most
  int32_t held_blocks = 0;
};

// An LS sequence with more to compute than one token once the step in flight is done.
struct AdmittedPrompt {
  int32_t level = 0;
  Nanos arrived{0};
  Nanos first_token_due = Nanos::max();  // max: it has no target, or had its first token
  PromptRest rest;                       // something is pending
  int32_t output_tokens = 0;             // of its tokens: it is computed anew
  int32_t max_tokens = 0;
  int32_t held_blocks = 0;
};

struct AdmissionView {
  // Equal for views of which one goes on where the other ends: the first `prompts` are the same.
  int64_t version = 0;
  Nanos now{0};
  std::optional<Nanos> step_began;  // of the step in flight
  // LS. Prompts in the order in which they go: running ones, then waiting ones by level and
  // arrival.
  std::span<const AdmittedDecode> decodes;
  std::span<const AdmittedPrompt> prompts;
  int64_t running_prompts = 0;      // leading ones of `prompts` that have a place already
  Nanos least_tpot = Nanos::max();  // among all of them
  // Best effort on the accelerator, and how many are on the host.
  int32_t best_effort_decodes = 0;
  int64_t best_effort_context = 0;
  int32_t best_effort_prompts = 0;        // running ones, and the first that waits
  int64_t best_effort_prompt_tokens = 0;  // of the longest of these
  int32_t offloaded = 0;
  // What there is in all, and what is free.
  int32_t places = 0;  // sequences at a time
  int32_t free_places = 0;
  int32_t step_tokens = 0;
  int64_t total_blocks = 0;
  int64_t free_blocks = 0;
  int32_t block_tokens = 32;
};

enum class AdmissionAnswer : uint8_t {
  kAccept,  // LS: its first token comes in time, by forecast
  kQueue,   // it has no target that could be missed, and waits for its turn
  kRefuse,
};

enum class RefusalReason : uint8_t {
  kNone,
  kFirstToken,        // its own would come too late
  kOthersFirstToken,  // that of one that was let in before would
  kTokenTime,         // steps would take longer than a TPOT target
  kBlocks,            // KV of all that were let in would not fit
  kPlaces,            // as many sequences were let in as may run
  kNeverFirstToken,   // its targets could not be kept on an idle server either
  kNeverTokenTime,
};

constexpr std::string_view answer_name(AdmissionAnswer answer) {
  return answer == AdmissionAnswer::kAccept  ? "accepted"
         : answer == AdmissionAnswer::kQueue ? "queued"
                                             : "refused";
}

// For headers, error codes, metrics and records.
constexpr std::string_view reason_name(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kFirstToken:
      return "slo_ttft";
    case RefusalReason::kOthersFirstToken:
      return "slo_ttft_others";
    case RefusalReason::kTokenTime:
      return "slo_tpot";
    case RefusalReason::kBlocks:
      return "kv_capacity";
    case RefusalReason::kPlaces:
      return "sequence_capacity";
    case RefusalReason::kNeverFirstToken:
      return "slo_ttft_impossible";
    case RefusalReason::kNeverTokenTime:
      return "slo_tpot_impossible";
    case RefusalReason::kNone:
      break;
  }
  return "";
}

struct AdmissionVerdict {
  AdmissionAnswer answer = AdmissionAnswer::kQueue;
  RefusalReason reason = RefusalReason::kNone;
  std::optional<Nanos> ttft;         // from arrival to its first token, by forecast
  Nanos step_time{0};                // kTokenTime: of a step, by forecast
  std::optional<Nanos> retry_after;  // kRefuse: when it might be let in; absent: never
};

class Admission {
 public:
  virtual ~Admission() = default;
  virtual AdmissionVerdict decide(const AdmissionView& view, const AdmissionAsk& ask) = 0;
  // An LS sequence has ended by itself after so many tokens: what is known about lengths.
  virtual void ended(int32_t output_tokens) = 0;
};

}  // namespace tandem
