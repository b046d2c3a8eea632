// Whether the host is trusted with new sequences: after repeated failures it is suspended for a
// while, longer each time, then tried again. Internal to engine/; engine thread only.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace tandem {

class HostTrust {
 public:
  // A token failed on the host.
  void failed(Nanos now) {
    constexpr int32_t kFailuresToSuspend = 4;
    constexpr Nanos kFirstSuspension = std::chrono::seconds(10);
    constexpr int32_t kMaxDoublings = 5;
    if (++failures_in_a_row_ < kFailuresToSuspend || suspended(now)) {
      return;
    }
    suspended_until_ = now + kFirstSuspension * (1 << std::min(suspensions_, kMaxDoublings));
    ++suspensions_;
  }
  // A token was computed with the host's help.
  void succeeded() {
    failures_in_a_row_ = 0;
    suspensions_ = 0;
  }
  [[nodiscard]] bool suspended(Nanos now) const { return now < suspended_until_; }

 private:
  int32_t failures_in_a_row_ = 0;  // of tokens, since one was computed
  int32_t suspensions_ = 0;        // in a row
  Nanos suspended_until_{0};       // nothing is offloaded before
};

}  // namespace tandem
