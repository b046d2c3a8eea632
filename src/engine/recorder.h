// Where a run is written down so that it can be replayed exactly. Called on the engine thread; must
// not block.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "engine/live_sequence.h"
#include "plan/admission.h"
#include "plan/decisions.h"
#include "plan/step.h"
#include "plan/views.h"

namespace tandem {

struct StepTimes {
  Nanos measured{0};   // launch to commit
  Nanos predicted{0};  // 0: there was no model of time
  int64_t visits = 0;  // rows of offloaded tokens at all stages
};

// `step` is always the next step to be planned when the input was absorbed.
class Recorder {
 public:
  virtual ~Recorder() = default;
  virtual void arrival(int64_t step, const Arrival& arrival, uint64_t seed) = 0;
  // It never came in: nothing follows from it.
  virtual void refusal(int64_t step, const AdmissionAsk& ask, const AdmissionVerdict& verdict) = 0;
  virtual void cancel(int64_t step, RequestId request) = 0;
  virtual void stop(int64_t step, RequestId request, int32_t choice) = 0;
  // Two tiers: in every advance that gets so far, also without an event.
  virtual void tiers(int64_t step, const TierEvents& events) = 0;
  virtual void plan(const SystemView& view,
                    const StepPlan& plan) = 0;  // every planning, also one without slices
  virtual void result(const StepResult& result, const StepTimes& times) = 0;
};

// A number that names all that a policy saw; equal views have equal digests.
uint64_t view_digest(const SystemView& view);

}  // namespace tandem
