// Sleeping on a 32-bit word, straight from the kernel. Used instead of mutexes and
// std::atomic::wait, whose hidden shared state would order threads that nothing else orders, and so
// hide a forgotten Device::wait from a race detector. The word's own atomic operations order
// memory; these calls order nothing. Any thread.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <limits>

namespace tandem::device {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// Returns at once when the word no longer holds `expected`, else after a wake; also for no reason
// at all, so callers loop.
inline void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

inline void futex_wake(const std::atomic<uint32_t>& word, int32_t sleepers) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, sleepers, nullptr, nullptr, 0);
}

inline void futex_wake_all(const std::atomic<uint32_t>& word) {
  futex_wake(word, std::numeric_limits<int32_t>::max());
}

}  // namespace tandem::device
