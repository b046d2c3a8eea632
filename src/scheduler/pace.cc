#include "scheduler/pace.h"

#include "scheduler/chunk_replay.h"

namespace tandem {
namespace {

bool is_sensitive(const SequenceView& one) {
  return one.service_class == ServiceClass::kLatencySensitive;
}

// The latency-sensitive prompt that gets a tile in any case: of those that run the first of the
// lowest level, else the first that waits.
const SequenceView* next_prompt(const SystemView& view) {
  const SequenceView* next = nullptr;
  for (const SequenceView& one : view.running) {
    if (is_sensitive(one) && !one.decodes() && (next == nullptr || one.level < next->level)) {
      next = &one;
    }
  }
  if (next == nullptr && !view.waiting.empty() && is_sensitive(view.waiting.front())) {
    next = &view.waiting.front();
  }
  return next;
}

}  // namespace

StepPace step_pace(const SystemView& view, const latency::StepTimeModel& model,
                   const latency::StepShape& decodes) {
  latency::StepShape least = decodes;
  if (const SequenceView* prompt = next_prompt(view); prompt != nullptr) {
    least.add_prefill(prompt->computed_tokens, std::min(kTileTokens, prompt->pending_tokens()), 1);
  }
  const Nanos least_time = model.step_time(least);
  StepPace asked;
  bool any_late = false;  // of those that an idle server could keep
  const auto look_at = [&](const SequenceView& one) {
    if (!is_sensitive(one) || one.tpot == Nanos::max()) {
      return;
    }
    if (one.tpot >= least_time) {
      asked.pace = std::min(asked.pace, std::max(pace_of(one.tpot), least_time));
      asked.step = std::min(asked.step, std::max(step_for(one, view.now), least_time));
    } else if (!any_late) {
      latency::StepShape alone;
      alone.add_decode(one.known_tokens);
      any_late = model.step_time(alone) <= one.tpot;
    }
  };
  std::ranges::for_each(view.running, look_at);
  std::ranges::for_each(view.waiting, look_at);
  return any_late && asked.pace == Nanos::max()
             ? StepPace{.step = least_time, .pace = least_time, .is_kept = false}
             : asked;
}

}  // namespace tandem
