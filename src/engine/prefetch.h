// Asks for the cache lines of sequences before their turn comes. Internal to engine/.
#pragma once

#include <cstddef>

#include "engine/live_sequence.h"

namespace tandem {

// A step's weights have driven the sequences out of the caches, so their lines are asked for before
// their turn comes: first the sequence, then, when that is here, what it points to.
inline constexpr size_t kSequencesAhead = 12;
inline constexpr size_t kContentAhead = 6;

inline void prefetch_busy(const LiveSequence& sequence) {
  constexpr size_t kLine = 64;
  for (size_t offset = 0; offset < BusySequence::kBytes; offset += kLine) {
    __builtin_prefetch(reinterpret_cast<const char*>(&sequence) + offset);
  }
}

// `at(i)` gives the sequence whose turn comes at i of `count`.
template <class At>
void prefetch_sequence(size_t i, size_t count, const At& at) {
  if (i + kSequencesAhead < count) {
    prefetch_busy(*at(i + kSequencesAhead));
  }
}

// The place that its next token is written to.
template <class At>
void prefetch_last_token(size_t i, size_t count, const At& at) {
  if (i + kContentAhead < count) {
    const std::vector<TokenId>& tokens = at(i + kContentAhead)->tokens;
    __builtin_prefetch(tokens.data() + tokens.size(), 1);
  }
}

// What the executor will read of it when the step is launched.
inline void prefetch_for_layout(const LiveSequence& sequence) {
  __builtin_prefetch(&sequence.sampling());
  __builtin_prefetch(sequence.kv.table().data());
}

}  // namespace tandem
