// Stall-free batching after Sarathi-Serve: every decode goes into every step; prompts fill what is
// left of a small token budget in chunks, those already begun before new ones. The budget bounds a
// step's time and so the gap between tokens.
//
// Guarantee: while blocks suffice, no decode waits for a prompt. When they run out the newest
// sequence is dropped first.
#pragma once

#include <cstdint>

#include "plan/decisions.h"

namespace tandem {

class SarathiPolicy final : public StepPolicy {
 public:
  // `token_budget` > 0: tokens of a step, decodes included; decodes alone may exceed it.
  explicit SarathiPolicy(int32_t token_budget);
  [[nodiscard]] std::string_view name() const override { return "sarathi"; }
  [[nodiscard]] QueueOrder queue_order() const override { return QueueOrder::kArrival; }
  StepPlan plan(const SystemView& view) override;

 private:
  int32_t token_budget_;
};

}  // namespace tandem
