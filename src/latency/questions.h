// Questions that policies ask of a step-time model, made of its three. Plain functions, any thread.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "latency/step_shape.h"
#include "latency/step_time_model.h"

namespace tandem::latency {

// A prompt that waits for a chunk in a step.
struct ChunkQuestion {
  int64_t computed_tokens = 0;  // of the prompt, before the chunk
  int32_t pending_tokens = 0;   // still to be computed
  int32_t last_logits = 1;      // rows sampled when the prompt ends
  int32_t most_tokens = 0;      // that the budgets allow
  int32_t guess = 0;            // what it may be near to, as in a step like it; 0: nobody knows
};

// The largest chunk with which the step of `shape` still ends within `limit`; 0 where not even one
// token does (OmniServe 3.3.4). About log2(most_tokens) predictions, two where the guess is right.
int32_t largest_chunk(const StepTimeModel& model, const StepShape& shape,
                      const ChunkQuestion& question, Nanos limit);

// `visits` rows of offloaded sequences join the step, spread evenly over its `stages`.
void add_visits(StepShape& shape, int64_t stages, int64_t visits);

// Omega (OmniServe 3.3.4, 3.3.5): what it takes to let `ready` results join the step of `shape`,
// spread evenly over its stages.
Nanos visitor_reserve(const StepTimeModel& model, const StepShape& shape, int64_t ready);

// How many visitors fit one stage within `slack`, at most `most` (OmniServe 3.3.6).
int64_t visitors_within(const StepTimeModel& model, const StageRows& at, Nanos slack, int64_t most);

}  // namespace tandem::latency
