// What policies for two classes keep free of best effort and of prompts, and the room that they
// make for best effort beside it. Plain functions; any thread.
#pragma once

#include <cstdint>

#include "plan/views.h"
#include "scheduler/classed_planner.h"

namespace tandem {

// While there are offloaded sequences, prompts and best-effort decodes leave visitors these parts
// of a step's rows of activations and of logits.
inline constexpr int32_t kVisitorShareOfTokens = 4;
inline constexpr int32_t kVisitorShareOfLogits = 8;

// New best-effort prompts leave at least this share of the blocks free, in percent, if any other
// sequence runs: a request that arrives next should not have to evict one first.
inline constexpr int32_t kAdmissionMargin = 10;

struct VisitorRows {
  int32_t tokens = 0;
  int32_t logits = 0;
};
VisitorRows visitor_rows(const SystemView& view);

// Results that wait for a stage: those that were counted, else one for each token under way.
int64_t ready_results(const SystemView& view);

// Null: none of this class is shown as waiting.
const SequenceView* first_waiting(const SystemView& view, ServiceClass service_class);

// Blocks that a new best-effort prompt leaves free; `offload_below` as in PiggybackOptions.
int64_t kept_beside_best_effort(const ClassedPlanner& planner, int32_t offload_below);

enum class NextPrompt : uint8_t { kMayBegin, kWaits };
// Offloads best-effort decodes while few blocks are free, or too few for the best-effort prompt
// that comes next, unless that prompt waits for something else: the decodes continue from the host
// while the prompt is computed.
void make_room_for_best_effort(ClassedPlanner& planner, const SystemView& view,
                               int32_t offload_below,
                               NextPrompt next_prompt = NextPrompt::kMayBegin);

}  // namespace tandem
