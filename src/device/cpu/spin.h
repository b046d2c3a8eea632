// Waiting actively, but never without a bound: the time after which a waiter must go to sleep.
#pragma once

#include "base/clock.h"

namespace tandem::device {

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// Spins until `ready()` or until `limit` is over; returns the last ready(). A limit of zero only
// asks.
template <class Ready>
bool spin_until(Nanos limit, const Ready& ready) {
  constexpr int kRelaxesPerLook = 16;  // a look at the clock costs about as much as one relax
  if (ready()) {
    return true;
  }
  if (limit <= Nanos{0}) {
    return false;
  }
  const SteadyClock clock;
  const Nanos end = clock.now() + limit;
  do {
    for (int i = 0; i < kRelaxesPerLook; ++i) {
      cpu_relax();
      if (ready()) {
        return true;
      }
    }
  } while (clock.now() < end);
  return false;
}

}  // namespace tandem::device
