// An accepted prompt that waits, as admission and policies see it. Internal to engine/.
#pragma once

#include "engine/live_sequence.h"
#include "plan/admission.h"

namespace tandem {

inline AdmittedPrompt admitted_prompt(const LiveSequence& waiting) {
  const int32_t cached =
      waiting.output_tokens() == 0 ? waiting.owner->believed_cached : waiting.computed_tokens;
  return {.level = waiting.level,
          .arrived = waiting.arrived,
          .first_token_due = waiting.output_tokens() == 0 ? waiting.first_token_due : Nanos::max(),
          .rest = {.computed_tokens = cached,
                   .pending_tokens = waiting.known_tokens() - cached,
                   .choices = waiting.choices},
          .output_tokens = waiting.output_tokens(),
          .max_tokens = waiting.max_tokens,
          .held_blocks = 0};
}

// The same of a request that is not in the engine yet.
inline AdmittedPrompt admitted_prompt(const AdmissionAsk& ask) {
  return {.level = ask.level,
          .arrived = ask.arrived,
          .first_token_due = due_at(ask.arrived, ask.ttft),
          .rest = ask.rest(),
          .output_tokens = 0,
          .max_tokens = ask.max_tokens,
          .held_blocks = 0};
}

}  // namespace tandem
