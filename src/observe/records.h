// What the engine tells the observers: one record per step, one per ended choice, and gauges. Plain
// data.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "plan/decisions.h"
#include "plan/step.h"
#include "request/slo.h"

namespace tandem::observe {

// A first token that admission had promised.
struct PromisedFirstToken {
  Nanos forecast{0};
  Nanos real{0};
  Nanos target = Nanos::max();
};

// What admission answered. Names as in plan/admission.h.
struct AdmissionRecord {
  std::string_view answer{};
  std::string_view reason{};  // of a refusal
  Nanos took{0};
  std::optional<Nanos> forecast;  // TTFT of the request
};

struct StepRecord {
  int64_t step = 0;
  int32_t prefill_tokens = 0;         // prompt rows computed
  int32_t decode_tokens = 0;          // decode rows computed
  int32_t resident_rows = 0;          // both, without those of offloaded sequences
  int32_t sampled_tokens = 0;         // output tokens produced
  int32_t preempted = 0;              // sequences dropped before this step
  int32_t put_off = 0;                // parts of the plan that found no room
  int64_t visits = 0;                 // rows of offloaded tokens, at all stages
  StepMode mode = StepMode::kGroups;  // how they joined
  bool mode_changed = false;          // the step before had the other mode
  int32_t lane_moves = 0;             // tokens under way that the plan put into a lane
  int32_t straight_to_host = 0;       // prompts whose KV the step copied to the host layer by layer
  int32_t let_in = 0;  // tokens that began on the host because the bound on holding was reached
  std::optional<LanesInequality> inequality{};  // if the policy weighed it
  int64_t prompt_tokens = 0;                    // of requests that got their first token
  int64_t cached_tokens = 0;                    // of these, taken from the prefix cache
  int64_t prefix_queried_tokens = 0;            // known tokens of sequences admitted in this step
  int64_t prefix_hit_tokens = 0;                // of these, found in the prefix cache
  int64_t prefix_blocks_fetched = 0;  // of cached prefixes, copied from the host beside this step
  // By ServiceClass.
  std::array<std::vector<Nanos>, kServiceClasses> first_token_times{};  // arrival to first token
  // Times between a sequence's two last tokens, for each sampled one but first ones; equal ones
  // that follow each other are counted together, and in a step that is nearly all.
  struct TokenGap {
    Nanos gap{0};
    int32_t tokens = 0;
  };
  std::array<std::vector<TokenGap>, kServiceClasses> token_gaps{};
  void add_token_gap(ServiceClass service_class, Nanos gap) {
    std::vector<TokenGap>& gaps = token_gaps[static_cast<size_t>(service_class)];
    if (gaps.empty() || gaps.back().gap != gap) {
      gaps.push_back({.gap = gap, .tokens = 0});
    }
    ++gaps.back().tokens;
  }
  std::vector<PromisedFirstToken> promised_first_tokens{};
  Nanos started{0};
  Nanos duration{0};  // launch to commit
  // Predicted duration of this step, with the correction of that time. 0: no model of time, or a
  // step without residents that waited for the host.
  Nanos predicted{0};
  Nanos held{0};              // of its duration: with lanes, the accelerator waited for the host
  Nanos step_budget{0};       // of time, that the policy kept to; 0: it has none
  std::string_view regime{};  // decode, mixed, prefill: what the correction goes by
  double correction = 1;      // of that regime, before this step
  // The engine thread's own time for this step: commit, plan, launch, and the deliveries of
  // tokens since the last step ended.
  Nanos engine_work{0};
};

// What is the case now.
struct EngineGauges {
  int64_t running = 0;  // sequences admitted and not ended
  int64_t waiting = 0;
  std::array<int64_t, kServiceClasses> waiting_by_class{};
  int64_t blocks_in_use = 0;  // held by a sequence; cached ones without a user count as free
  int64_t total_blocks = 0;
  // Two tiers only.
  int64_t offloaded = 0;  // running sequences whose KV is on the host, or moves there or back
  int64_t moving = 0;     // offloaded sequences whose KV moves now
  int64_t host_blocks_in_use = 0;
  int64_t host_blocks = 0;
  int64_t host_blocks_out_of_use = 0;  // a lost worker may still write to them
  bool host_suspended = false;  // it failed again and again: nothing is offloaded for a while
};

// Two tiers: what went on between them, and what bounds it.
struct TierRecord {
  TierCounts counts;
  int32_t max_rows = 0;  // of a step
};

// A paced emulated accelerator: sums since the start.
struct PaceRecord {
  int64_t ops = 0;
  int64_t overruns = 0;  // that ended later than modelled
};

// What an ended choice means for its class' attainment.
enum class SloOutcome : uint8_t {
  kNoTargets,
  kMet,
  kMissed,   // also by an error
  kAborted,  // ended by the client or the server's stop before anything was missed
};

// Times are on the engine's clock; first_token and ended are 0 where that never happened.
struct RequestRecord {
  ServiceClass service_class = ServiceClass::kLatencySensitive;
  SloOutcome slo = SloOutcome::kNoTargets;
  SloVerdict verdict;           // which target was missed
  std::string finish_reason{};  // stop, length, abort, error
  int32_t prompt_tokens = 0;
  int32_t output_tokens = 0;
  // Of the request's longest choice; set with the choice that ends last.
  std::optional<int32_t> max_output_tokens;
  int32_t cached_tokens = 0;
  int32_t n = 1;
  int32_t max_tokens = 0;
  Nanos arrived{0};
  Nanos admitted{0};
  Nanos first_token{0};
  Nanos last_token{0};
  Nanos ended{0};
};

}  // namespace tandem::observe
