// How long a link was busy, estimated from copies whose completion is noticed late. A copy took no
// longer than from its launch, or from the last completion noticed before, until its own completion
// was noticed; and no longer than its bytes take at the fastest rate seen so far. Rates are learnt
// from copies that were launched on an idle link only: of other copies a part may have been carried
// before.
//
// One thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace tandem {

class LinkTime {
 public:
  // Copies of `bytes` in all, the first launched at `launched`, were found complete at `now`; all
  // copies before them were found complete earlier. Returns how long they kept the link busy.
  Nanos carried(int64_t bytes, Nanos launched, Nanos now) {
    const bool idle_before = launched >= last_;
    const Nanos longest = now - std::max(launched, last_);
    last_ = now;
    const auto amount = static_cast<double>(bytes);
    if (idle_before && longest > Nanos{0}) {
      bytes_per_nano_ = std::max(bytes_per_nano_, amount / static_cast<double>(longest.count()));
    }
    if (bytes_per_nano_ <= 0) {
      return longest;
    }
    const double at_best_rate = std::min(amount / bytes_per_nano_, 1e15);
    return std::min(longest, Nanos{static_cast<int64_t>(at_best_rate)});
  }

 private:
  double bytes_per_nano_ = 0;  // the fastest so far
  Nanos last_{0};
};

}  // namespace tandem
