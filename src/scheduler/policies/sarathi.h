// Stall-free batching after Sarathi-Serve, with two classes: every decode goes into every step;
// prompts fill what is left of a small token budget in chunks, latency-sensitive ones before
// best-effort ones and inside a class the lower level first. The budget bounds a step's time and so
// the gap between tokens, whatever the targets are. Order: budget_batch.h.
//
// Guarantee: while blocks suffice, no decode waits for a prompt. When they run out the newest
// best-effort sequence is dropped first, then the newest latency-sensitive one.
#pragma once

#include <cstdint>

#include "plan/fcfs_order.h"
#include "scheduler/budget_batch.h"
#include "scheduler/policy.h"

namespace tandem {

extern const PolicyDescriptor kSarathi;
extern const PolicyOption kSarathiTokenBudget;

class SarathiPolicy final : public StepPolicy {
 public:
  // `token_budget` > 0: tokens of a step, decodes included; decodes alone may exceed it.
  explicit SarathiPolicy(int32_t token_budget) : rules_{.token_budget = token_budget} {}
  [[nodiscard]] std::string_view name() const override { return kSarathi.name; }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override {
    return fcfs_order(FcfsOrder::By::kClassFirst);
  }
  StepPlan plan(const SystemView& view) override { return plan_budget_batch(view, rules_); }

 private:
  const BudgetRules rules_;
};

}  // namespace tandem
