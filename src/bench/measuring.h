// A clock and an exit code that several benchmarks share. Any thread.
#pragma once

#include <chrono>
#include <string_view>

#include "base/log.h"

namespace tandem::bench {

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Logs why a measurement failed; returns its exit code.
inline int failed(std::string_view what) {
  log::error("{}", what);
  return 1;
}

}  // namespace tandem::bench
