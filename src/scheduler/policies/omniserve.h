// OmniServe's scheduler (3.3): two classes on two tiers, with a model of time. Each step is planned
// to end within the smallest TPOT target among the latency-sensitive (LS) sequences, in this order:
//
//   LS decodes    all of them, whatever the model says: admission (slo_admission.h) has seen to it
//   LS prompts    the largest chunks with which the step stays within the target
//   BE decodes    while the time allows, less omega (what visitors whose results wait add to the
//                 step), and only what leaves waiting LS prompts time enough for their first
//                 token; else, where it stays so, they are offloaded
//   BE prompts    the same, while the step has no more tokens than its budget
//
// or, with published_best_effort, BE prompts in chunks as large as targets allow, then BE decodes;
// inside a class and level first come, first served. Where blocks are missing room is made as
// ClassedPlanner says: offload before drop. Offloaded best effort comes back when time and blocks
// have been left over for a while.
//
// While the host's attention has been the limit for long (host_limit.h), best effort goes to the
// host only where a sequence would otherwise be computed anew: neither for lack of time nor to make
// room for the next prompt. Prompts are not computed for the host either: one begins only if the
// accelerator will have time to decode it, or if it is overdue, and none is written through.
//
// An LS sequence that is offloaded as a last resort decodes on the host only if its TPOT target
// allows it: a token joins about one stage a step, so with d layers and steps of T it takes
// (d + 1) * T. Otherwise the sequence waits without compute, comes back before anything else, and
// gets room as a waiting LS request does (docs/decisions/031).
//
// Guarantees, whatever the model says, where a step has rows for all places, two tiles and the
// visitors' quarter (with fewer rows a tile has fewer tokens):
//
//   - Each LS decode is in each step. Of the LS prompts that run, the first gets a tile of tokens
//     in each step.
//   - A best-effort decode gets its token after at most `patience_steps` steps, if there are blocks
//     for it.
//   - Best-effort prompts are computed one after another, and the first gets tokens after at most
//     `patience_steps` steps: a tile, far into a long prompt fewer (overdue_chunk). When none is
//     begun, the first in the queue begins after as many steps as soon as there are blocks and
//     places for it. No LS request that has not begun takes them before it, if best effort would
//     have at most a quarter of blocks and places with it (claim_of_head). Requests whose first
//     token admission has promised before may, and requests that wait before these.
//
// The rows that the last two need are kept from LS prompts. Visitors: see slack_binder.h.
//
// With admission: what best effort gets beyond that leaves all promised first tokens in time, by
// the model.
//
// A TPOT target that an idle server could not keep limits nothing, and one that LS decodes and a
// tile alone cannot keep limits nothing while others can be kept: one impossible target does not
// slow down the other requests.
#pragma once

#include <cstdint>
#include <memory>

#include "latency/host_times.h"
#include "latency/step_time_model.h"
#include "plan/fcfs_order.h"
#include "scheduler/host_limit.h"
#include "scheduler/host_waits.h"
#include "scheduler/patience.h"
#include "scheduler/policy.h"
#include "scheduler/slack_binder.h"
#include "scheduler/slo_admission.h"

namespace tandem {

extern const PolicyDescriptor kOmniServe;
extern const PolicyOption kPatienceSteps;
extern const PolicyOption kHostLimitSteps;
extern const PolicyOption kPublishedBestEffort;

struct OmniServeOptions {
  // Tokens of a step while no target limits it, and of a step to which best-effort prompts are
  // added.
  int32_t token_budget = 512;
  // Shares of the accelerator's blocks in percent, as for piggyback.
  int32_t offload_below = 5;
  int32_t onload_above = 10;
  int32_t patience_steps = 64;  // > 0
  // Steps in a row in which the host must be the limit before best effort stops going there, if the
  // host's times are known; 0: never.
  int32_t host_limit_steps = 32;
  // Its prompts before its decodes, chunks as large as targets allow (docs/decisions/041).
  bool published_best_effort = false;
};

// The limit that LS sequences gave holds for best effort so long after the last of them: who comes
// next should not wait long for a step to end.
inline constexpr Nanos kRememberLimit = std::chrono::seconds(10);

class OmniServePolicy final : public StepPolicy {
 public:
  // Both must outlive it. Null: the host's times are not known.
  OmniServePolicy(const OmniServeOptions& options, const latency::StepTimeModel& step_times,
                  const latency::HostTimes* host_times = nullptr);
  [[nodiscard]] std::string_view name() const override { return kOmniServe.name; }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override {
    return fcfs_order(FcfsOrder::By::kClassFirst);
  }
  StepPlan plan(const SystemView& view) override;

  // The binder that goes with it; the policy must outlive it.
  [[nodiscard]] std::unique_ptr<Binder> make_binder() {
    return std::make_unique<SlackBinder>(forecast_, step_times_, options_.patience_steps);
  }
  // The admission that goes with it; the policy must outlive it.
  [[nodiscard]] std::unique_ptr<Admission> make_admission() {
    return std::make_unique<SloAdmission>(AdmissionRules{.token_budget = options_.token_budget,
                                                         .patience_steps = options_.patience_steps},
                                          step_times_, forecast_, memory_.head);
  }

  // What it remembers from step to step.
  struct Memory {
    Patience patience;
    InARow roomy;                // steps in which time was left over
    Nanos limit = Nanos::max();  // that LS sequences last gave
    Nanos limited{0};            // when
    HostWaits::Memory host_waits;
    HostLimit host_limit;
    // LS requests have targets now or had them a moment ago.
    [[nodiscard]] bool is_limited(Nanos now) const {
      return limit < Nanos::max() && now - limited <= kRememberLimit;
    }
    OverdueHead head;
  };

 private:
  bool host_limits(const SystemView& view);

  OmniServeOptions options_;
  const latency::StepTimeModel& step_times_;
  const latency::HostTimes* const host_times_;
  StepForecast forecast_;
  Memory memory_;
};

}  // namespace tandem
