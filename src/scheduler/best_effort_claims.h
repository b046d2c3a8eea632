// What best effort may claim in a step whatever the time, because it has been passed over for too
// long. Plain functions; any thread.
#pragma once

#include <cstdint>

#include "plan/views.h"
#include "scheduler/chunk_replay.h"
#include "scheduler/classed_planner.h"
#include "scheduler/patience.h"
#include "scheduler/slo_admission.h"

namespace tandem {

struct BestEffortClaims {
  ForcedWork work;  // of all best effort, once in as many steps as it has patience
  const SequenceView* head = nullptr;  // the first best-effort request in the queue
  int32_t overdue_decodes = 0;
  int64_t overdue_context = 0;     // of these
  bool prompt_is_overdue = false;  // the one that is next: the first that has begun, else the head
  bool prompt_can_run = false;     // and there are blocks and places for it
  OverdueHead of_head;             // once the head is overdue and its turn

  // What overdue decodes add to the step of `shape`.
  [[nodiscard]] Nanos overdue_decode_time(const latency::StepTimeModel& model,
                                          const latency::StepShape& shape) const {
    return overdue_decodes == 0
               ? Nanos{0}
               : forced_time(model, shape,
                             {.decodes = overdue_decodes, .context = overdue_context});
  }
  // Of the step, which latency-sensitive prompts leave it.
  [[nodiscard]] int32_t rows() const {
    return overdue_decodes + (prompt_is_overdue && prompt_can_run ? kTileTokens : 0);
  }
  // A latency-sensitive one that begins leaves sequences that wait on the host their blocks to come
  // back, and the head its blocks and places, unless it was promised its first token before.
  [[nodiscard]] bool others_are_left_room(const ClassedPlanner& planner,
                                          const SequenceView& waiting) const {
    const PlanBuilder& left = planner.builder();
    const int64_t kept = planner.blocks_to_return() + of_head.blocks;
    return waiting.promised ||
           ((kept == 0 || left.blocks_left() - planner.blocks_to_begin(waiting) >= kept) &&
            (of_head.places == 0 || left.sequences_left() - waiting.choices >= of_head.places));
  }
};
// Needs a planner that has planned nothing.
BestEffortClaims best_effort_claims(const SystemView& view, const ClassedPlanner& planner,
                                    const Patience& patience);

// Places of sequences on the accelerator, in all.
int32_t places_of(const SystemView& view);

}  // namespace tandem
