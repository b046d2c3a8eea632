// The step that is being assembled or is in flight. Internal to engine/: the engine owns it, and
// its parts share it. Its memory is reused from step to step.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "engine/live_sequence.h"
#include "latency/step_shape.h"
#include "observe/records.h"
#include "plan/step.h"

namespace tandem {

// What one slice of the step will give its sequence.
struct StepPart {
  LiveSequence* sequence = nullptr;
  int32_t tokens = 0;
  int32_t samples = 0;
  int32_t scores = 0;
};

struct CurrentStep {
  int64_t number = 1;  // of the step that is launched next
  Nanos now{0};        // of the advance in progress
  bool in_flight = false;
  Nanos launched{0};
  int64_t next_transfer = 1;  // id of the next copy between the tiers
  StepInput input;
  std::vector<StepPart> parts;      // by slice
  std::vector<SampleSpec> samples;  // of all slices, in their order; the slices point into it
  latency::StepShape shape;         // visitors are known when the step has finished
  observe::StepRecord record;
  StepResult result;                            // of the step that was committed last
  int64_t ready = -1;                           // as policies are to see it
  Nanos step_budget{0};                         // of the last plan that had one
  StepMode last_mode = StepMode::kGroups;       // of the step that was launched last
  std::optional<observe::StepRecord> finished;  // of a committed step, until it is reported

  // It computes tokens of offloaded sequences only.
  [[nodiscard]] bool visitors_only() const { return input.slices.empty(); }
};

}  // namespace tandem
