// Candidate steps: what residents do, and the rules by which offloaded tokens join them. Each is a
// pure function of the view and of what is believed about time: (view, beliefs) -> the plan, the
// time that it is predicted to take, and the output tokens with which it is credited. So candidates
// of different rules can be compared in one currency.
//
// Residents: latency-sensitive sequences stay on the accelerator; best effort computes its prompts
// there and decodes wherever its KV is (OmniServe 3.2, without its latency models). In this order:
//
//   latency sensitive   decodes, parked ones back, prompts begun, new prompts
//   best effort         offload while few blocks are free, or too few for the next prompt; decodes,
//                       prompts begun, new prompts; parked ones back while many blocks are free
//
// Prompts share one token budget per step, in chunks. How room is made: classed_planner.h.
//
// Credit: a resident decode, and each choice of a prompt that ends in the step, is one token. A
// result that joins a stage is 1 / (layers + 1) of one. In lanes each offloaded token goes through
// all stages, so it is a whole one, and the step takes at least as long as the host attends in all
// layers, if the host's times are known.
//
// Plain functions; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "latency/step_shape.h"
#include "scheduler/policy.h"

namespace tandem {

struct CandidateRules {
  int32_t token_budget = 512;  // tokens of a step, decodes included; decodes alone may exceed it
  // Shares of the accelerator's blocks, in percent, 0 <= below <= above <= 100. The gap between
  // them keeps sequences from moving back and forth.
  int32_t offload_below = 5;  // fewer free: best-effort decodes are offloaded; 100: always
  int32_t onload_above = 10;  // still so many free afterwards: a parked one comes back; 100: never
};

struct Candidate {
  StepPlan plan;
  latency::StepShape shape;   // of the residents, and of the visits that are expected
  std::optional<Nanos> time;  // absent: nothing is believed about time
  double tokens = 0;          // without belief a result that joins counts as nothing
};

// Residents alone: no result joins.
Candidate make_resident(const SystemView& view, const Beliefs& beliefs,
                        const CandidateRules& rules);
// Results join the stages at which they are ready.
Candidate make_visitors(const SystemView& view, const Beliefs& beliefs,
                        const CandidateRules& rules);
// The same in cohorts: those that wait at one stage join it together (APEX 3.3). What is ready now
// may have to wait for the rest of its cohort, so this is an upper bound of the credit.
Candidate make_overlap(const SystemView& view, const Beliefs& beliefs, const CandidateRules& rules);
// Two lanes while sequences decode on the host (NEO 3.1): residents in the first and offloaded
// tokens in the second. Without residents the offloaded ones are dealt out to both, so that the
// host attends for one lane while the accelerator computes the other.
Candidate make_lanes(const SystemView& view, const Beliefs& beliefs, const CandidateRules& rules);

}  // namespace tandem
