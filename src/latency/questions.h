// Questions that policies ask of a step-time model, made of its three. Plain functions, any thread.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/prompt_rest.h"
#include "latency/step_shape.h"
#include "latency/step_time_model.h"

namespace tandem::latency {

// A prompt that waits for a chunk in a step.
struct ChunkQuestion {
  PromptRest prompt;         // before the chunk
  int32_t max_tokens = 0;    // of the chunk, as the budgets allow
  int32_t guess = 0;         // a chunk that was right in a step like this; 0: none is known
  int32_t least_tokens = 0;  // of the chunk, whatever the limit
};

// The largest chunk with which the step of `shape` still ends within `limit`; 0 if not even one
// token does and none is asked for (OmniServe 3.3.4). About log2(max_tokens) predictions, two if
// the guess is right, none without a limit (Nanos::max()).
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
