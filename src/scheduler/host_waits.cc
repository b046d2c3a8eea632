#include "scheduler/host_waits.h"

#include <algorithm>
#include <limits>

#include "latency/questions.h"

namespace tandem {

HostWaits::HostWaits(const SystemView& view, const latency::StepTimeModel& model, Memory& memory)
    : view_(view), model_(model), memory_(memory) {
  const int64_t window = view.step / (model.layers() + 1);
  if (window != memory.window) {
    memory = {.window = window,
              .max_step_before = window == memory.window + 1 ? memory.max_step : Nanos{0}};
  }
}

void HostWaits::bring_back(ClassedPlanner& planner) const {
  for (const SequenceView& sequence : view_.offloaded) {
    const bool is_between_tokens = sequence.state == SequenceState::kParkedWaiting ||
                                   sequence.state == SequenceState::kSwapped;
    if (is_between_tokens && must_wait(sequence)) {
      planner.make_room_to_return(sequence);
    }
  }
  planner.bring_back(ServiceClass::kLatencySensitive, 0, std::numeric_limits<int32_t>::max());
}

void HostWaits::hold(StepPlan& plan) const {
  const auto moves = [](const SequenceView& sequence) {
    return sequence.state == SequenceState::kOffloading ||
           sequence.state == SequenceState::kOnloading;
  };
  if (plan.slices.empty() && plan.offload.empty() && plan.onload.empty() &&
      std::ranges::none_of(view_.offloaded, moves)) {
    return;
  }
  for (const SequenceView& sequence : view_.offloaded) {
    if (must_wait(sequence) && std::ranges::count(plan.onload, sequence.id) == 0) {
      plan.hold.push_back(sequence.id);
    }
  }
  for (const SequenceId id : plan.offload) {
    const auto sequence = std::ranges::find(view_.running, id, &SequenceView::id);
    if (sequence != view_.running.end() && must_wait(*sequence)) {
      plan.hold.push_back(id);
    }
  }
}

StepPlan HostWaits::finish(StepPlan plan, const latency::StepShape& shape, int64_t ready) const {
  if (view_.budget.host_total_blocks == 0) {
    return plan;
  }
  hold(plan);
  const Nanos time = model_.step_time(shape) + latency::visitor_reserve(model_, shape, ready);
  memory_.max_step = std::max(memory_.max_step, time);
  return plan;
}

}  // namespace tandem
