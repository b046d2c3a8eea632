// Two classes on two tiers, simply: latency-sensitive sequences stay on the accelerator;
// best-effort ones compute their prompts there and decode wherever their KV is (OmniServe 3.2,
// without its latency models). Each step in this order:
//
//   latency sensitive   decodes, parked ones back, prompts begun, new prompts
//   best effort         offload while few blocks are free, or too few for the next prompt; decodes,
//                       prompts begun, new prompts; parked ones back while many blocks are free
//
// Prompts share one token budget per step, in chunks. Where blocks are missing, first best-effort
// decodes are offloaded, newest first, and whoever needs the blocks waits until they come; only
// where the host has no room are best-effort sequences recomputed, newest first; latency-sensitive
// ones go last, onto the host where that has room, and come back before anything else does.
//
// Guarantee: a latency-sensitive sequence never loses its blocks to a best-effort one, and a
// running one never to a waiting one. While blocks are coming someone waits for them, so nobody is
// recomputed for an impatient step.
#pragma once

#include <cstdint>

#include "scheduler/policy.h"

namespace tandem {

extern const PolicyDescriptor kPiggyback;
extern const PolicyDescriptor kOverlap;
extern const PolicyDescriptor kLanes;

extern const PolicyOption kPiggybackTokenBudget;
extern const PolicyOption kOffloadBelow;
extern const PolicyOption kOnloadAbove;

struct PiggybackOptions {
  int32_t token_budget = 512;  // tokens of a step, decodes included; decodes alone may exceed it
  // Shares of the accelerator's blocks, in percent, 0 <= below <= above <= 100. The gap between
  // them keeps sequences from going to and fro.
  int32_t offload_below = 25;  // fewer free: best-effort decodes are offloaded; 100: always
  int32_t onload_above = 50;   // still so many free afterwards: a parked one comes back; 100: never
};
// The values of the three options. Error: offload_below above onload_above.
Result<PiggybackOptions> piggyback_options(const PolicyOptions& options);

// How offloaded tokens join a step; a binder of the same rule belongs to it
// (scheduler/join_binders.h).
enum class JoinRule : uint8_t {
  kReady,   // `piggyback`: whoever is ready
  kCohort,  // `overlap`: those at the same stage together, in a later step if not all are ready
  kWait,    // `lanes`: steps have two lanes while sequences decode on the host
};

class PiggybackPolicy final : public StepPolicy {
 public:
  explicit PiggybackPolicy(const PiggybackOptions& options, JoinRule join = JoinRule::kReady);
  [[nodiscard]] std::string_view name() const override;
  [[nodiscard]] QueueOrder queue_order() const override { return QueueOrder::kClassFirst; }
  StepPlan plan(const SystemView& view) override;

 private:
  const PiggybackOptions options_;
  const JoinRule join_;
};

}  // namespace tandem
