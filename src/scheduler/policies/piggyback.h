// The candidates of candidates.h as policies, each by itself: two classes on two tiers, without a
// model of time.
//
// `piggyback`   visitors: results join whatever stage they are ready for (OmniServe 3.2)
// `overlap`     cohorts: tokens at the same stage join together (APEX 3.3)
// `lanes`       two lanes, whose stages wait for their offloaded tokens (NEO 3.1)
//
// Guarantee: a latency-sensitive sequence never loses its blocks to a best-effort one, and a
// running one never to a waiting one. While blocks are coming some sequence waits for them, so none
// is recomputed for an impatient step.
#pragma once

#include "plan/fcfs_order.h"
#include "scheduler/candidates.h"
#include "scheduler/policy.h"

namespace tandem {

extern const PolicyDescriptor kPiggyback;
extern const PolicyDescriptor kOverlap;
extern const PolicyDescriptor kLanes;

extern const PolicyOption kPiggybackTokenBudget;
extern const PolicyOption kOffloadBelow;
extern const PolicyOption kOnloadAbove;

using PiggybackOptions = CandidateRules;
// The values of the three options; onload_above is at least offload_below.
PiggybackOptions piggyback_options(const PolicyOptions& options);

using MakeCandidate = Candidate (*)(const SystemView& view, const Beliefs& beliefs,
                                    const CandidateRules& rules);

class PiggybackPolicy final : public StepPolicy {
 public:
  // What `beliefs` name must outlive it.
  explicit PiggybackPolicy(const PiggybackOptions& options,
                           const PolicyDescriptor& descriptor = kPiggyback,
                           MakeCandidate make = make_visitors, const Beliefs& beliefs = {});
  [[nodiscard]] std::string_view name() const override { return descriptor_.name; }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override {
    return fcfs_order(FcfsOrder::By::kClassFirst);
  }
  StepPlan plan(const SystemView& view) override { return make_(view, beliefs_, options_).plan; }

 private:
  const PiggybackOptions options_;
  const PolicyDescriptor& descriptor_;
  const MakeCandidate make_;
  const Beliefs beliefs_;
};

}  // namespace tandem
