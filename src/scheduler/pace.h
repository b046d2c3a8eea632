// How long steps may be so that a TPOT target is kept. It is a mean over an answer, and steps miss
// their forecasts both ways: filled to the target, every other answer would miss it. So steps are
// planned a little shorter than the target, and a sequence that is late, by the tokens that it has
// and the times when they came, makes the next steps shorter still. Plain functions; any thread.
#pragma once

#include <algorithm>

#include "base/clock.h"
#include "latency/step_shape.h"
#include "latency/step_time_model.h"
#include "plan/views.h"

namespace tandem {

// 1/25 is kept for what the model gets wrong (docs/decisions/019).
inline constexpr int64_t kPaceReserve = 25;

// Of a step, where nobody is late.
constexpr Nanos pace_of(Nanos tpot) {
  return tpot == Nanos::max() ? tpot : tpot - tpot / kPaceReserve;
}

// Of the next step, for a latency-sensitive decode: at least half of its pace, so that one that is
// far behind does not stop everybody else.
constexpr Nanos step_for(const SequenceView& decode, Nanos now) {
  const Nanos pace = pace_of(decode.tpot);
  if (decode.next_token_due == Nanos::max()) {
    return pace;
  }
  const Nanos due = decode.first_token + pace_of(decode.next_token_due - decode.first_token);
  return std::clamp(due - now, pace / 2, pace);
}

struct StepPace {
  Nanos step = Nanos::max();  // of the next one
  Nanos pace = Nanos::max();  // of those where nobody is late
  bool is_kept = true;        // false: it is what steps take at least, no target
};

// The shortest that a latency-sensitive sequence which runs or comes next asks for, among those
// whose targets their decodes (`decodes`) and a tile of the next prompt can keep. Where there are
// only others, what these take, so that they are as little late as can be. A target that an idle
// server could not keep either limits nothing. Nanos::max(): no limit.
StepPace step_pace(const SystemView& view, const latency::StepTimeModel& model,
                   const latency::StepShape& decodes);

}  // namespace tandem
