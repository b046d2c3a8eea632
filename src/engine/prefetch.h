// Asks for the cache lines of sequences before their turn comes. Internal to engine/.
#pragma once

#include <cstddef>

#include "engine/live_sequence.h"

namespace tandem {

// A step's weights have driven the sequences out of the caches, so their lines are asked for before
// their turn comes: first the object, then, when that is here, what it points to.
inline constexpr size_t kObjectAhead = 12;
inline constexpr size_t kContentAhead = 6;

inline void prefetch_bytes(const void* begin, size_t bytes) {
  constexpr size_t kLine = 64;
  for (size_t offset = 0; offset < bytes; offset += kLine) {
    __builtin_prefetch(static_cast<const char*>(begin) + offset);
  }
}

inline void prefetch_content(const LiveSequence& sequence) {
  __builtin_prefetch(&sequence.owner->request.sink);
  if (!sequence.tokens.empty()) {
    __builtin_prefetch(&sequence.tokens.back(), 1);
  }
}

// `at(i)` gives the sequence whose turn comes at i of `count`.
template <class At>
void prefetch_ahead(size_t i, size_t count, const At& at) {
  if (i + kObjectAhead < count) {
    prefetch_bytes(at(i + kObjectAhead), LiveSequence::kBusyBytes);
  }
  if (i + kContentAhead < count) {
    prefetch_content(*at(i + kContentAhead));
  }
}

}  // namespace tandem
