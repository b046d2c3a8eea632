// Llumnix' way with classes, as OmniServe compares itself with it (its section 5): a fixed share of
// the KV blocks is headroom for latency-sensitive (LS) requests, into which no best-effort (BE) one
// is let; LS goes first everywhere. It knows nothing of time: prompts of both classes fill a fixed
// token budget beside the decodes, and everything is served on the accelerator.
//
// Guarantee: an LS sequence never loses its blocks to a BE one. BE that runs is recomputed, newest
// first, where LS needs the blocks; it may wait without bound.
#pragma once

#include <cstdint>

#include "plan/decisions.h"

namespace tandem {

struct LlumnixOptions {
  int32_t token_budget = 512;     // tokens of a step, decodes included; decodes alone may exceed it
  int32_t headroom_percent = 20;  // of the blocks, 0 .. 100
};

class LlumnixPolicy final : public StepPolicy {
 public:
  explicit LlumnixPolicy(const LlumnixOptions& options);
  [[nodiscard]] std::string_view name() const override { return "llumnix"; }
  [[nodiscard]] QueueOrder queue_order() const override { return QueueOrder::kClassFirst; }
  StepPlan plan(const SystemView& view) override;

 private:
  LlumnixOptions options_;
};

}  // namespace tandem
