// Llumnix' way with classes, as OmniServe compares itself with it (its section 5): a fixed share of
// the KV blocks is headroom for latency-sensitive (LS) requests, into which no best-effort (BE) one
// is let; LS goes first everywhere. It knows nothing of time. Order: budget_batch.h.
//
// `llumnix`       everything on the accelerator
// `llumnix_cpu`   BE that finds no blocks outside the headroom decodes on the host until it ends.
//                 What that leaves out of the paper's "whole on the CPU": docs/decisions/016.
//
// Guarantee: an LS sequence never loses its blocks to a BE one. BE that runs makes room, newest
// first, where LS needs the blocks: recomputed later, or, where the host has room, by moving there.
// In the queue it may wait without bound.
#pragma once

#include "plan/fcfs_order.h"
#include "scheduler/budget_batch.h"
#include "scheduler/policy.h"

namespace tandem {

extern const PolicyDescriptor kLlumnix;
extern const PolicyDescriptor kLlumnixCpu;
extern const PolicyOption kLlumnixHeadroom;

class LlumnixPolicy final : public StepPolicy {
 public:
  explicit LlumnixPolicy(const BudgetRules& rules) : rules_(rules) {}
  [[nodiscard]] std::string_view name() const override {
    return rules_.overflow == BudgetRules::Overflow::kWaits ? kLlumnix.name : kLlumnixCpu.name;
  }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override {
    return fcfs_order(FcfsOrder::By::kClassFirst);
  }
  StepPlan plan(const SystemView& view) override { return plan_budget_batch(view, rules_); }

 private:
  const BudgetRules rules_;
};

}  // namespace tandem
