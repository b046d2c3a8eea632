// Clocks and an exit code that several benchmarks share. Any thread.
#pragma once

#include <ctime>
#include <string_view>

#include "base/clock.h"
#include "base/log.h"

namespace tandem::bench {

// Processor time that the calling thread has used.
inline Nanos thread_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + Nanos{time.tv_nsec};
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
