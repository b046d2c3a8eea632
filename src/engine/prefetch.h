// Asks for the cache lines of sequences before their turn comes. Internal to engine/.
//
// A step's weights have driven the sequences out of the caches. Asking for all of them first, and
// only then working through them, takes fewer stalls than asking some places ahead of the work: a
// core has room for a dozen lines on their way, and the work itself needs lines, too. Thousands of
// sequences fit a second-level cache.
#pragma once

#include <cstddef>

#include "engine/live_sequence.h"

namespace tandem {

inline void prefetch_busy(const LiveSequence& sequence) {
  constexpr size_t kLine = 64;
  for (size_t offset = 0; offset < LiveSequence::kBusyBytes; offset += kLine) {
    __builtin_prefetch(reinterpret_cast<const char*>(&sequence) + offset);
  }
}

// The sequences that `sequence_of` finds in `parts`.
template <class Parts, class SequenceOf>
void prefetch_sequences(const Parts& parts, const SequenceOf& sequence_of) {
  for (const auto& part : parts) {
    prefetch_busy(*sequence_of(part));
  }
}

// The places that their next tokens are written to; reads the sequences.
template <class Parts, class SequenceOf>
void prefetch_next_tokens(const Parts& parts, const SequenceOf& sequence_of) {
  for (const auto& part : parts) {
    const std::vector<TokenId>& tokens = sequence_of(part)->tokens;
    __builtin_prefetch(tokens.data() + tokens.size(), 1);
  }
}

// What the executor will read of it when the step is launched.
inline void prefetch_for_layout(const LiveSequence& sequence) {
  __builtin_prefetch(&sequence.sampling());
  __builtin_prefetch(sequence.kv.table().data());
}

}  // namespace tandem
