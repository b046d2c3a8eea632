// Processor time of the calling thread: what else a busy machine does is not in it.
#pragma once

#include <ctime>

#include "base/clock.h"

namespace tandem {

inline Nanos thread_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + Nanos(time.tv_nsec);
}

}  // namespace tandem
