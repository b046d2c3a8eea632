// A step while it is planned: ClassedPlanner with the shape (latency/step_shape.h) of what is in
// the plan so far, so that a model of time can be asked about it at any point.
//
// One object per planning; borrows the view.
#pragma once

#include <cstddef>
#include <cstdint>

#include "latency/step_shape.h"
#include "scheduler/classed_planner.h"

namespace tandem {

class StepDraft {
 public:
  explicit StepDraft(const SystemView& view) : view_(view), planner_(view) {}

  // The next tokens of running sequence `index`, as ClassedPlanner::add puts them in. False: they
  // are not in the plan. add_chunk: of a prompt; for 0 tokens false.
  bool add_chunk(size_t index, int32_t tokens);
  bool add_decode(size_t index);
  // A waiting sequence begins with `tokens`; if it cannot, that is noted as refused.
  bool admit(const SequenceView& waiting, int32_t tokens);
  // A waiting sequence goes straight to the host. False: it does not begin.
  bool admit_to_host(const SequenceView& waiting);

  [[nodiscard]] const latency::StepShape& shape() const { return shape_; }
  [[nodiscard]] ClassedPlanner& planner() { return planner_; }
  [[nodiscard]] const ClassedPlanner& planner() const { return planner_; }
  [[nodiscard]] const PlanBuilder& builder() const { return planner_.builder(); }

 private:
  void count_chunk(const SequenceView& prompt, int32_t tokens) {
    shape_.add_prefill(prompt.computed_tokens, tokens,
                       tokens == prompt.pending_tokens() ? prompt.choices : 0);
  }

  const SystemView& view_;
  ClassedPlanner planner_;
  latency::StepShape shape_;
};

}  // namespace tandem
