// HyGen's two phases (HyGen 4.1, 4.2): latency-sensitive requests ("online") first, then best
// effort ("offline") into what is left of three budgets of the step:
//
//   time    --hygen-step-budget, as the step-time model predicts: a slice costs f(B + r) - f(B),
//           what the step B takes longer with it
//   tokens  --piggyback-token-budget
//   blocks  --flex-blocks: a best-effort prompt begins while best effort then holds at most so
//           many percent of the KV blocks; its decodes may outgrow them
//
// Order: online decodes, online prompts, offline decodes, offline prompts; those that run before
// those that wait. Offline requests wait first come, first served, or, with --psm-utility, in the
// order that shares most prefixes (psm_order.h); then one that shares blocks with a prompt of this
// step, which nobody has computed yet, waits for them. Targets of requests are not read: the step
// budget stands for them, found so that a metric of the online requests stays within a tolerance.
//
// `hygen` predicts. `sarathi_pp` is the baseline without a model of time: the same phases by tokens
// and blocks alone.
//
// With a host tier, offline decodes whose blocks are needed go there before any is dropped, and go
// on from there; the time that their results take in a step is set aside before prompts.
//
// Bounds. Every online decode is in every step for which it has blocks, whatever the budget. A step
// takes longer than the budget only by online decodes, by the tile that an online prompt gets
// whatever the time, or where nothing else is in it. No offline slice makes it longer. An offline
// request loses its blocks to an online one, newest first, and an online one never to an offline
// one. Offline requests have no bound: they wait while online ones fill the budget. How often one
// is passed over by other offline ones: psm_order.h.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "latency/step_time_model.h"
#include "scheduler/policy.h"

namespace tandem {

extern const PolicyDescriptor kHyGen;
extern const PolicyDescriptor kSarathiPp;
extern const PolicyOption kHyGenStepBudget;
extern const PolicyOption kFlexBlocks;
extern const PolicyOption kPsmUtility;

struct HyGenOptions {
  Nanos step_budget = Nanos::max();  // Nanos::max(): no budget of time
  int32_t token_budget = 512;        // of a step; decodes alone may exceed it
  int32_t flex_blocks = 100;         // percent of the blocks, of offline requests
  int32_t offload_below = 25;        // as of CandidateRules
  int32_t onload_above = 50;
  int32_t psm_utility = 0;  // as of PsmOrder; 0: first come, first served
};

class HyGenPolicy final : public StepPolicy {
 public:
  // `step_times` is null exactly if there is no budget of time; it must outlive the policy.
  HyGenPolicy(const HyGenOptions& options, const latency::StepTimeModel* step_times);
  [[nodiscard]] std::string_view name() const override {
    return step_times_ == nullptr ? kSarathiPp.name : kHyGen.name;
  }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override;
  StepPlan plan(const SystemView& view) override;

 private:
  const HyGenOptions options_;
  const latency::StepTimeModel* step_times_;
};

}  // namespace tandem
