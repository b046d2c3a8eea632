// Latency-sensitive (LS) sequences that were offloaded as a last resort: which of them wait on the
// host without compute, and how they come back.
//
// A token on the host joins about one stage a step, so with d layers and steps of T it takes
// (d + 1) * T. An LS sequence whose TPOT target is shorter would miss it with every token that it
// computes there. It waits instead, comes back before anything else, and gets room as a waiting LS
// request does: best effort is offloaded or recomputed. T is the longest step that was predicted in
// the last d + 1 steps or somewhat more: in this window of d + 1 steps and in the one before.
//
// One object per planning; borrows the view.
#pragma once

#include <algorithm>
#include <cstdint>

#include "latency/step_time_model.h"
#include "plan/decisions.h"
#include "scheduler/classed_planner.h"

namespace tandem {

class HostWaits {
 public:
  // From step to step.
  struct Memory {
    int64_t window = 0;  // number of the newest
    Nanos max_step{0};   // in it
    Nanos max_step_before{0};
  };
  HostWaits(const SystemView& view, const latency::StepTimeModel& model, Memory& memory);

  [[nodiscard]] bool must_wait(const SequenceView& sequence) const {
    return sequence.service_class == ServiceClass::kLatencySensitive &&
           sequence.tpot / (model_.layers() + 1) <
               std::max(memory_.max_step, memory_.max_step_before);
  }

  // LS sequences between two tokens move back while blocks are free.
  void bring_back(ClassedPlanner& planner) const;

  // Names those in `plan` that must wait. None in a step in which nothing else goes on: there they
  // keep no sequence waiting, and a plan must do something. The plan has this shape; `ready`
  // results wait for a stage.
  [[nodiscard]] StepPlan finish(StepPlan plan, const latency::StepShape& shape,
                                int64_t ready) const;

 private:
  void hold(StepPlan& plan) const;

  const SystemView& view_;
  const latency::StepTimeModel& model_;
  Memory& memory_;
};

}  // namespace tandem
