// OmniServe's scheduler (3.3): two classes on two tiers, with a model of time. Each step is planned
// to end within the smallest TPOT target among the latency-sensitive (LS) sequences, in this order:
//
//   LS decodes    all of them, whatever the model says: admission (slo_admission.h) has seen to it
//   LS prompts    the largest chunks with which the step stays within the target
//   BE prompts    the same, less omega (what visitors whose results wait will add), and only what
//                 leaves waiting LS prompts time enough for their first token
//   BE decodes    while the same time allows; else, where it stays so, they are offloaded
//
// inside a class and level first come, first served. Where blocks are missing room is made as
// ClassedPlanner says: offload before drop. Offloaded best effort comes back when time and blocks
// have been left over for a while.
//
// Guarantees, whatever the model says. Where LS prompts run, the first gets a tile of tokens in
// each step. A best-effort prompt gets a tile and a best-effort decode its token at the latest
// after `patience_steps` steps; the best-effort request that is first in the queue begins after as
// many as soon as there are blocks and a place, and no LS request that has not begun takes those
// before it, but for those that admission has promised their first token before. Visitors: see
// slack_binder.h.
//
// With admission: what best effort gets beyond that leaves all promised first tokens in time, by
// the model.
//
// Limits that cannot be kept by LS decodes and one tile alone do not count while others can: one
// impossible target does not slow down everybody.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "latency/step_time_model.h"
#include "plan/decisions.h"
#include "scheduler/slack_binder.h"
#include "scheduler/slo_admission.h"

namespace tandem {

struct OmniServeOptions {
  int32_t token_budget = 512;  // tokens of a step while no target limits it
  // Shares of the accelerator's blocks in percent, as for piggyback.
  int32_t offload_below = 25;
  int32_t onload_above = 50;
  int32_t patience_steps = 64;  // > 0
};

class OmniServePolicy final : public StepPolicy {
 public:
  // `step_times` must outlive it.
  OmniServePolicy(const OmniServeOptions& options, const latency::StepTimeModel& step_times);
  [[nodiscard]] std::string_view name() const override { return "omniserve"; }
  [[nodiscard]] QueueOrder queue_order() const override { return QueueOrder::kClassFirst; }
  StepPlan plan(const SystemView& view) override;

  // The binder that goes with it; the policy must outlive it.
  [[nodiscard]] std::unique_ptr<Binder> make_binder();
  // The admission that goes with it; the policy must outlive it.
  [[nodiscard]] std::unique_ptr<Admission> make_admission();

  // What it remembers from step to step.
  struct Memory {
    // Best-effort sequences that had no part in the last plan, and the step since which.
    std::unordered_map<SequenceId, int64_t> passed_over;
    int64_t roomy_since = -1;    // step since which time was left over; -1: it was not
    Nanos limit = Nanos::max();  // that LS sequences last gave
    Nanos limited{0};            // when
    OverdueHead head;
  };

 private:
  OmniServeOptions options_;
  const latency::StepTimeModel& step_times_;
  StepForecast forecast_;
  Memory memory_;
};

}  // namespace tandem
