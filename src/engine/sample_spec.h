// How the next token of a sequence is drawn. Internal to engine/.
#pragma once

#include <span>

#include "engine/live_sequence.h"
#include "plan/step.h"

namespace tandem {

// `spec` points into the sequence and its request.
inline void fill_sample(const LiveSequence& sequence, SampleSpec& spec) {
  spec.sequence = sequence.id;
  spec.params = &sequence.sampling();
  spec.seed = sequence.seed;
  spec.position = sequence.known_tokens();
  spec.prompt = std::span(sequence.tokens).first(static_cast<size_t>(sequence.prompt_tokens));
  spec.output = std::span(sequence.tokens).subspan(static_cast<size_t>(sequence.prompt_tokens));
  if (sequence.output_tokens() < sequence.min_tokens) {
    spec.banned = sequence.stop_ids;
  }
}

}  // namespace tandem
