// When prompts that wait would be done, by the model: their chunks are cut step by step as the
// omniserve policy cuts them. Asked by that policy before it gives time to best effort, and by the
// admission of latency-sensitive requests (OmniServe 3.3.3). Plain functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "latency/step_shape.h"
#include "latency/step_time_model.h"

namespace tandem {

// The least of a prompt that a step computes where it computes any: the rows of a tile.
inline constexpr int32_t kTileTokens = 16;

// The largest chunk of a prompt with which the step of `shape` stays within `limit`, at most
// `most_tokens`, at least one tile of it where `least` says so.
struct ChunkAsk {
  int64_t computed_tokens = 0;
  int32_t pending_tokens = 0;
  int32_t choices = 1;
  int32_t most_tokens = 0;
};
enum class LeastChunk : uint8_t { kNothing, kTile };
int32_t chunk_within(const latency::StepTimeModel& model, const latency::StepShape& shape,
                     const ChunkAsk& ask, Nanos limit, LeastChunk least);

struct PromptAhead {
  int64_t computed_tokens = 0;
  int32_t pending_tokens = 0;  // > 0
  int32_t choices = 1;
};

struct ReplayRules {
  latency::StepShape decodes;  // that every step contains; each grows by a token a step
  Nanos limit = Nanos::max();  // of a step
  int32_t step_tokens = 0;     // rows of a step, decodes included
  Nanos apart{0};              // what best effort may add to each step beyond its limit
};

// For each prompt, in their order, how long from now until its first token; Nanos::max() for what
// lies beyond `kReplaySteps` steps. Prompts that are done decode in the steps after.
inline constexpr int32_t kReplaySteps = 4096;
std::vector<Nanos> replay_prompts(const latency::StepTimeModel& model, ReplayRules rules,
                                  std::span<const PromptAhead> prompts);

}  // namespace tandem
