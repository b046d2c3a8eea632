#include "scheduler/pace.h"

#include "scheduler/chunk_replay.h"

namespace tandem {
namespace {

bool is_sensitive(const SequenceView& one) {
  return one.service_class == ServiceClass::kLatencySensitive;
}

bool is_sensitive_prompt(const SequenceView& one) { return is_sensitive(one) && !one.decodes(); }

}  // namespace

StepPace step_pace(const SystemView& view, const latency::StepTimeModel& model,
                   const latency::StepShape& decodes) {
  latency::StepShape least = decodes;
  if (std::ranges::any_of(view.running, is_sensitive_prompt) ||
      std::ranges::any_of(view.waiting, is_sensitive_prompt)) {
    least.add_prefill(0, kTileTokens, 1);
  }
  const Nanos least_time = model.step_time(least);
  bool any = false;
  StepPace asked;
  const auto look_at = [&](const SequenceView& one) {
    if (!is_sensitive(one) || one.tpot == Nanos::max()) {
      return;
    }
    any = true;
    if (const Nanos pace = pace_of(one.tpot); pace >= least_time) {
      asked.pace = std::min(asked.pace, pace);
      asked.step = std::min(asked.step, std::max(step_for(one, view.now), least_time));
    }
  };
  std::ranges::for_each(view.running, look_at);
  std::ranges::for_each(view.waiting, look_at);
  return any && asked.pace == Nanos::max() ? StepPace{least_time, least_time} : asked;
}

}  // namespace tandem
