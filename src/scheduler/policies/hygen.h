// HyGen's two phases (HyGen 4.1, 4.2): latency-sensitive requests ("online") first, then best
// effort ("offline") into what is left of three budgets of the step:
//
//   time    --hygen-step-budget, as the step-time model predicts: a slice costs f(B + r) - f(B),
//           the time by which the slice makes step B longer. With --step-budget-flex-only the
//           budget bounds offline slices alone: tokens bound online prompts, and offline slices get
//           the time that is left, which may be none
//   tokens  --piggyback-token-budget
//   blocks  --flex-blocks: a best-effort prompt begins while best effort then holds at most so
//           many percent of the KV blocks; its decodes may outgrow them. If no other best-effort
//           request runs, a best-effort prompt begins whatever its size
//
// Order: online decodes, online prompts, offline decodes, offline prompts; those that run before
// those that wait. Online requests wait first come, first served, or with --fair-tenants so that
// tenants get equal service (vtc_order.h). Offline requests wait first come, first served, or with
// --deadline-first by their targets, or with --psm-utility in the order that shares most prefixes
// (psm_order.h); then one that shares blocks with a prompt of this step, which nobody has computed
// yet, waits for them. Targets are read for that order only: the step budget stands for them, found
// so that a metric of the online requests stays within a tolerance.
//
// `hygen` predicts. Two baselines have no model of time but the same phases by tokens and blocks:
// `sarathi_pp`, and `hygen_star` (HyGen 5.1), under which best-effort requests also begin at a
// fixed rate, found by `tandem tune` as hygen's budget is; where nothing else runs, one begins at
// once.
//
// With a host tier, offline decodes whose blocks are needed go there before any is dropped, and go
// on from there; the time that their results take in a step is set aside before prompts.
//
// The budget may follow goals for latency-sensitive requests while it serves: budget_controller.h.
//
// Bounds. Every online decode is in every step for which it has blocks, whatever the budget. A step
// takes longer than the budget only by online decodes, by the tile that an online prompt gets
// whatever the time, or where nothing else is in it. With --step-budget-flex-only it may also take
// longer by whole online prompts, up to the token budget: then only that bounds a step with an
// online prompt, and each such prompt begins as it would without offline requests. With either no
// offline slice joins a step that takes longer than the budget, or makes it take longer. An offline
// request loses its blocks to an online one, newest first, and an online one never to an offline
// one. Offline requests have no bound: they wait while online ones fill the budget. How often one
// is passed over by other offline ones: psm_order.h.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "latency/step_time_model.h"
#include "scheduler/budget_controller.h"
#include "scheduler/policy.h"

namespace tandem {

extern const PolicyDescriptor kHyGen;
extern const PolicyDescriptor kSarathiPp;
extern const PolicyDescriptor kHyGenStar;
extern const PolicyOption kFlexRate;
extern const PolicyOption kHyGenStepBudget;
extern const PolicyOption kStepBudgetFlexOnly;  // 0 or 1
extern const PolicyOption kFlexBlocks;
extern const PolicyOption kPsmUtility;
extern const PolicyOption kDeadlineFirst;  // 0 or 1
extern const PolicyOption kFairTenants;    // 0 or 1
// Goals of the latency-sensitive requests; 0: none.
extern const PolicyOption kHoldMeanTbt;
extern const PolicyOption kHoldP99Tbt;
extern const PolicyOption kHoldMeanTtft;
extern const PolicyOption kHoldP99Ttft;

struct HyGenOptions {
  Nanos step_budget = Nanos::max();  // Nanos::max(): no budget of time
  bool budget_flex_only = false;     // online prompts may exceed step_budget
  int32_t token_budget = 512;        // of a step; decodes alone may exceed it
  int32_t flex_blocks = 100;         // percent of the blocks, of offline requests
  int32_t offload_below = 5;         // as of CandidateRules
  int32_t onload_above = 10;
  int32_t psm_utility = 0;      // as of PsmOrder; 0: first come, first served, or
  bool deadline_first = false;  // whose target for the first token ends first
  bool fair_tenants = false;    // of online requests: VtcOrder, not first come, first served
  BudgetGoals goals;            // which the step budget follows
  // Best-effort requests that begin in 1,000 s; 0: no bound. Not with a budget of time.
  int32_t flex_rate = 0;
};

class HyGenPolicy final : public StepPolicy {
 public:
  // `step_times` is null exactly if there is no budget of time; it must outlive the policy.
  HyGenPolicy(const HyGenOptions& options, const latency::StepTimeModel* step_times);
  [[nodiscard]] std::string_view name() const override;
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override;
  StepPlan plan(const SystemView& view) override;

 private:
  HyGenOptions options_;  // its step budget as it is now
  const latency::StepTimeModel* step_times_;
  std::optional<BudgetController> controller_;  // absent: the budget stays
  double may_begin_ = 1;                        // best-effort requests, of flex_rate
  Nanos counted_{0};                            // until then
};

}  // namespace tandem
