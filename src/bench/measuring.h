// A clock, sizes, a median and an exit code that several benchmarks share. Any thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/log.h"

namespace tandem::bench {

inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr int64_t kGiB = int64_t{1} << 30;

// Of an even number of values the higher of the middle two; 0 without values.
inline double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0.0 : values[values.size() / 2];
}

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Logs why a measurement failed; returns its exit code.
inline int failed(std::string_view what) {
  log::error("{}", what);
  return 1;
}

}  // namespace tandem::bench
