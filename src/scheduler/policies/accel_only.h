// Continuous batching as vLLM does it: first come, first served over one token budget, prompts and
// decodes alike, prompts in chunks; when blocks run out the newest running sequence is dropped and
// recomputed. Knows no classes and no latencies.
//
// Guarantee: a running sequence is only ever dropped in favour of an older one, so the oldest
// always finishes.
#pragma once

#include "plan/fcfs_order.h"
#include "scheduler/policy.h"

namespace tandem {

extern const PolicyDescriptor kAccelOnly;

class AccelOnlyPolicy final : public StepPolicy {
 public:
  [[nodiscard]] std::string_view name() const override { return kAccelOnly.name; }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override {
    return fcfs_order(FcfsOrder::By::kArrival);
  }
  StepPlan plan(const SystemView& view) override;
};

}  // namespace tandem
