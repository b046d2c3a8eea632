// How long the lists of a request's sampling parameters may be: refused beyond that where they are
// parsed, planned for where a step's input is given its memory.
#pragma once

#include <cstdint>

namespace tandem {

inline constexpr int32_t kMostLogitBiases = 1024;
inline constexpr int32_t kMostStopTokenIds = 128;

}  // namespace tandem
