#include "base/affinity.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstddef>

namespace tandem {

bool pin_this_thread(int32_t cpu) { return pin_this_thread(std::span<const int32_t>(&cpu, 1)); }

bool pin_this_thread(std::span<const int32_t> cpus) {
  const auto count = static_cast<size_t>(*std::max_element(cpus.begin(), cpus.end())) + 1;
  cpu_set_t* set = CPU_ALLOC(count);
  if (set == nullptr) {
    return false;
  }
  const size_t bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, set);
  for (const int32_t cpu : cpus) {
    CPU_SET_S(static_cast<size_t>(cpu), bytes, set);
  }
  const bool pinned = pthread_setaffinity_np(pthread_self(), bytes, set) == 0;
  CPU_FREE(set);
  return pinned;
}

}  // namespace tandem
