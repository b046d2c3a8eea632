// The time that a step of omniserve may take, phase by phase: each function takes what the phases
// before it found and returns what it finds. Internal to the policy; plain functions, any thread.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "latency/step_time_model.h"
#include "plan/views.h"
#include "scheduler/best_effort_claims.h"
#include "scheduler/chunk_replay.h"
#include "scheduler/first_tokens.h"
#include "scheduler/margins.h"
#include "scheduler/policies/omniserve.h"
#include "scheduler/step_draft.h"

namespace tandem::omniserve {

inline constexpr Nanos kNoLimit = Nanos::max();

// What all phases of a planning read and none changes.
struct Setting {
  const SystemView& view;
  const OmniServeOptions& options;
  const latency::StepTimeModel& model;
  const BestEffortClaims& claims;
  VisitorRows visitors;
  int64_t ready = 0;  // results that wait for a stage
};

// What targets leave a step.
struct StepTime {
  Nanos limit = kNoLimit;             // of this step
  Nanos pace = kNoLimit;              // of steps in which no sequence is late
  bool pace_is_target = true;         // false: it is the least that steps take
  Nanos overdue_decodes{0};           // that overdue best-effort decodes claim of this step
  bool first_tokens_at_risk = false;  // they would come late in steps as short, or as long
};

// `decodes`: the latency-sensitive decodes of the next step, as far as they are known.
StepTime step_time(const Setting& setting, const latency::StepShape& shape,
                   const latency::StepShape& decodes);

// Rows of the step; `time` limits it.
int32_t max_step_tokens(const Setting& setting, const StepTime& time);
// Of the steps that come, the first of which begins `lost` later than it could.
ReplayRules replay_rules(const Setting& setting, const StepTime& time,
                         const latency::StepShape& decodes, Nanos lost);

// `limit` less what overdue best-effort decodes claim.
constexpr Nanos before_overdue_decodes(const StepTime& time, Nanos limit) {
  return limit == kNoLimit ? limit : limit - time.overdue_decodes;
}

// What time best effort gets.
struct BestEffortTime {
  Nanos first_tokens = kNoLimit;  // until then the step must end for first tokens to be in time
  Nanos limit = kNoLimit;         // of the step
  Nanos unclaimed = kNoLimit;     // the same, for best effort that is not overdue
};

// After the latency-sensitive part of the step, which has this shape. `remembered`: the limit that
// latency-sensitive sequences gave a moment ago; kNoLimit: none.
struct AfterLatencySensitive {
  const latency::StepShape& shape;
  const latency::StepShape& decodes;  // of the next step
  const FirstTokens& first_tokens;
  Nanos lost{0};
  Nanos remembered = kNoLimit;
};
BestEffortTime best_effort_time(const Setting& setting, const StepTime& time,
                                const AfterLatencySensitive& after);

// Cuts the chunks of prompts in one part of a step.
struct ChunkRules {
  int32_t step_tokens = 0;  // of the step, at most
  int32_t kept_rows = 0;    // that best effort claims of it
  int64_t visits = 0;       // of results that wait, which the limit is to have time for

  // The largest chunk with which the step stays within `limit`. `least` tokens go in even where
  // neither the time nor the budget has room for them.
  [[nodiscard]] int32_t chunk(const Setting& setting, const StepDraft& draft,
                              const SequenceView& prompt, Nanos limit, int32_t least) const;
};

}  // namespace tandem::omniserve
