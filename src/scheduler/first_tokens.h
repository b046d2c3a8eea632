// The first tokens that latency-sensitive prompts wait for while a step is planned: which prompts
// end in the step, what is left of the others after it, and until when the step must end so that
// all of them are in time. One object per planning. Plain state, no threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "latency/step_time_model.h"
#include "plan/views.h"
#include "scheduler/chunk_replay.h"

namespace tandem {

class FirstTokens {
 public:
  // `tokens` of this prompt are in the step, perhaps none. Prompts are noted in their order.
  void note(const SequenceView& prompt, int32_t tokens);
  // One of which nothing can be in the step.
  void note(const AdmittedPrompt& prompt);

  // Something is left of a prompt after this step.
  [[nodiscard]] bool any_ahead() const { return !ahead_.empty(); }

  // Of one that has a target.
  [[nodiscard]] bool any_due_ahead() const { return looked_at_ > 0; }

  // The first tokens are in time even where each step takes as long as `step` and has no more than
  // a tile of a prompt.
  [[nodiscard]] bool in_time_tile_by_tile(Nanos step, Nanos now) const;

  // When the first of the prompts that end in this step is due; those that are late already, and
  // Nanos::max(), do not count.
  [[nodiscard]] Nanos first_due_in_step(Nanos now) const;

  // Until when, from `now`, the step must end; Nanos::max(): it does not matter. `rules` are those
  // of the steps after it.
  [[nodiscard]] Nanos limit(const latency::StepTimeModel& model, const ReplayRules& rules,
                            Nanos now) const;

 private:
  void put(const PromptRest& rest, Nanos due);

  std::vector<Nanos> due_in_step_;  // of prompts that end in this step
  std::vector<PromptAhead> ahead_;  // what is left of prompts after it
  std::vector<Nanos> due_ahead_;
  size_t looked_at_ = 0;  // of ahead_: beyond it none has a target
};

// Of all latency-sensitive prompts, those that run and those that wait, before a step is planned.
FirstTokens first_tokens_of(const SystemView& view);

// How many of the leading sequences in view.waiting admission has promised their first token, or
// wait before one that it has: what is promised behind them needs that they begin.
size_t promised_line(const SystemView& view);

}  // namespace tandem
