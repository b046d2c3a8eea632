#include "scheduler/first_tokens.h"

#include <algorithm>

namespace tandem {

void FirstTokens::note(const SequenceView& prompt, int32_t tokens) {
  const Nanos due = planned_due(prompt.arrived, prompt.first_token_due);
  if (tokens == prompt.pending_tokens()) {
    due_in_step_.push_back(due);
    return;
  }
  put(prompt.rest().after(tokens), due);
}

void FirstTokens::note(const AdmittedPrompt& prompt) {
  put(prompt.rest, planned_due(prompt.arrived, prompt.first_token_due));
}

void FirstTokens::put(const PromptRest& rest, Nanos due) {
  ahead_.push_back({.rest = rest});
  due_ahead_.push_back(due);
  looked_at_ = due < Nanos::max() ? ahead_.size() : looked_at_;
}

bool FirstTokens::in_time_tile_by_tile(Nanos step, Nanos now) const {
  int64_t steps = 0;
  for (size_t i = 0; i < looked_at_; ++i) {
    steps += (ahead_[i].rest.pending_tokens + kTileTokens - 1) / kTileTokens;
    if (due_ahead_[i] < Nanos::max() && (due_ahead_[i] - now) / steps < step) {
      return false;
    }
  }
  return true;
}

Nanos FirstTokens::first_due_in_step(Nanos now) const {
  Nanos first = Nanos::max();
  for (const Nanos due : due_in_step_) {
    first = due > now ? std::min(first, due) : first;
  }
  return first;
}

Nanos FirstTokens::limit(const latency::StepTimeModel& model, const ReplayRules& rules,
                         Nanos now) const {
  Nanos end = Nanos::max();
  for (const Nanos due : due_in_step_) {
    end = due == Nanos::max() ? end : std::min(end, due - now);
  }
  if (looked_at_ == 0) {
    return end;
  }
  const std::vector<Nanos> rest = replay_prompts(model, rules, std::span(ahead_).first(looked_at_));
  for (size_t i = 0; i < looked_at_; ++i) {
    if (due_ahead_[i] < Nanos::max()) {
      end = std::min(end, rest[i] == Nanos::max() ? Nanos{0} : due_ahead_[i] - now - rest[i]);
    }
  }
  return end;
}

FirstTokens first_tokens_of(const SystemView& view) {
  FirstTokens all;
  for (const std::span<const SequenceView> sequences : {view.running, view.waiting}) {
    for (const SequenceView& one : sequences) {
      if (one.service_class == ServiceClass::kLatencySensitive && !one.decodes()) {
        all.note(one, 0);
      }
    }
  }
  for (const AdmittedPrompt& prompt : view.later) {
    all.note(prompt);
  }
  return all;
}

size_t promised_line(const SystemView& view) {
  const auto is_due = [](const AdmittedPrompt& prompt) {
    return prompt.first_token_due < Nanos::max();
  };
  if (std::ranges::any_of(view.later, is_due)) {
    return view.waiting.size();
  }
  const auto last =
      std::ranges::find(view.waiting.rbegin(), view.waiting.rend(), true, &SequenceView::promised);
  return static_cast<size_t>(view.waiting.rend() - last);
}

}  // namespace tandem
