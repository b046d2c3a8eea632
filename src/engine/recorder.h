// Receives all that a run depends on, so that it can be replayed exactly. Called on the engine
// thread; must not block.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "engine/engine_input.h"
#include "plan/admission.h"
#include "plan/decisions.h"
#include "plan/step.h"
#include "plan/views.h"

namespace tandem {

struct StepTimes {
  Nanos measured{0};   // launch to commit
  Nanos predicted{0};  // 0: there was no model of time
};

// `step` is always the next step to be planned when the input was absorbed.
class Recorder {
 public:
  virtual ~Recorder() = default;
  virtual void arrival(int64_t step, const Arrival& arrival, uint64_t seed) = 0;
  // Refused by admission: recorded for analysis, ignored by replay.
  virtual void refusal(int64_t step, const AdmissionAsk& ask, const AdmissionVerdict& verdict) = 0;
  virtual void cancel(int64_t step, RequestId request) = 0;
  virtual void stop(int64_t step, RequestId request, int32_t choice) = 0;
  // Two tiers: in every advance that finds no step running, even if there was no event.
  virtual void tiers(int64_t step, const TierEvents& events) = 0;
  virtual void plan(const SystemView& view,
                    const StepPlan& plan) = 0;  // every planning, also one without slices
  // Two tiers: each decision of the binder for the step of the last plan.
  virtual void bind(const BindView& view, const BindDecision& decision) = 0;
  virtual void result(const StepResult& result, const StepTimes& times) = 0;
};

// Records nothing.
class NullRecorder final : public Recorder {
 public:
  void arrival(int64_t, const Arrival&, uint64_t) override {}
  void refusal(int64_t, const AdmissionAsk&, const AdmissionVerdict&) override {}
  void cancel(int64_t, RequestId) override {}
  void stop(int64_t, RequestId, int32_t) override {}
  void tiers(int64_t, const TierEvents&) override {}
  void plan(const SystemView&, const StepPlan&) override {}
  void bind(const BindView&, const BindDecision&) override {}
  void result(const StepResult&, const StepTimes&) override {}
};

// The default of an engine without a recorder.
inline Recorder& no_recorder() {
  static NullRecorder recorder;
  return recorder;
}

// A number that identifies all that a policy saw; equal views have equal digests. Version 1, of
// earlier records, leaves out what a policy sees of tiers and of the request behind a sequence.
inline constexpr int kViewDigestVersion = 2;
uint64_t view_digest(const SystemView& view, int version);

}  // namespace tandem
