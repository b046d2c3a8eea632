// The link between the tiers as the streams share it: copies of one direction go one after the
// other in the order in which they ask, each stream for its copies of the next millisecond; the
// directions do not hinder each other. What a compute
// stream moves (a step's inputs and results, a few KB that its kernels read and write over the
// link themselves) does not queue behind the copy engines' rows, it shares the link with them. Any
// thread.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace tandem::device {

enum class LinkDirection : uint8_t { kToHost, kToDevice };

class Link {
 public:
  explicit Link(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  [[nodiscard]] double bytes_per_second() const { return bytes_per_second_; }

  // The time from which the link belongs to a copy of this length that could begin at `earliest`.
  // Relaxed: sharing a link must order nothing that a race detector could take for a wait.
  Nanos reserve(LinkDirection direction, Nanos earliest, Nanos length) {
    std::atomic<int64_t>& taken = taken_until_[static_cast<size_t>(direction)];
    int64_t until = taken.load(std::memory_order_relaxed);
    int64_t begin = 0;
    do {
      begin = std::max(until, earliest.count());
    } while (
        !taken.compare_exchange_weak(until, begin + length.count(), std::memory_order_relaxed));
    return Nanos{begin};
  }

  // The time that a transfer of this length takes from `earliest` on beside whatever has the link:
  // each gets half of it while both are under way. Puts the others off by its own length.
  Nanos share(LinkDirection direction, Nanos earliest, Nanos length) {
    std::atomic<int64_t>& taken = taken_until_[static_cast<size_t>(direction)];
    int64_t until = taken.load(std::memory_order_relaxed);
    while (!taken.compare_exchange_weak(until, std::max(until, earliest.count()) + length.count(),
                                        std::memory_order_relaxed)) {
    }
    const Nanos others = std::max(Nanos{until} - earliest, Nanos{0});
    return length + std::min(length, others);
  }

 private:
  const double bytes_per_second_;
  std::array<std::atomic<int64_t>, 2> taken_until_{};  // nanoseconds
};

}  // namespace tandem::device
