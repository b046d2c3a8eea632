// Sizes of memory for tests.
#pragma once

#include <cstdint>

namespace tandem {

inline constexpr int64_t kMiB = int64_t{1} << 20;

}  // namespace tandem
