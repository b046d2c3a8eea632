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
  bool prompt_is_overdue = false;  // the one that is next: the first that has begun, else the head
  bool prompt_can_run = false;     // and there are blocks and places for it
  OverdueHead of_head;             // once the head is overdue and its turn

  // Of the step, which latency-sensitive prompts leave it.
  [[nodiscard]] int32_t rows() const {
    return overdue_decodes + (prompt_is_overdue && prompt_can_run ? kTileTokens : 0);
  }
};
// Needs a planner that has planned nothing.
BestEffortClaims best_effort_claims(const SystemView& view, const ClassedPlanner& planner,
                                    const Patience& patience);

// Places of sequences on the accelerator, in all.
int32_t places_of(const SystemView& view);

}  // namespace tandem
