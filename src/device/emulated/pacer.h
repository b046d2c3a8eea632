// The modelled time of one stream: when what was run so far would have ended on the accelerator.
// Ops run as soon as they can (copies over a link when it is nearly their turn) and only their end
// is held back, where it can be seen: at the next event. Between two events a slow op is made good
// by the modelled time of the others, so what counts as an overrun is an op that an event saw end
// late. Plain arithmetic on times that are handed in; one thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace tandem::device {

class Pacer {
 public:
  // Nothing that follows begins before `time`: the stream stood still until then, or a shared link
  // is taken.
  void not_before(Nanos time) {
    if (time > due_) {
      due_ = time;
      slip_ = Nanos{0};
    }
  }

  // An op of modelled length `cost` has really ended at `ended`.
  void charge(Nanos cost, Nanos ended) {
    due_ += cost;
    late_ops_ = ended > due_ + slip_ ? late_ops_ + 1 : 0;
  }

  // An event: returns when it may complete. Ops that ended late push everything after them back.
  Nanos settle(Nanos now) {
    if (late_ops_ > 0) {
      overruns_ += late_ops_;
      lateness_ += std::max(now - due_, Nanos{0});
      due_ = std::max(due_, now);
      slip_ = Nanos{0};
      late_ops_ = 0;
    }
    return due_;
  }
  // The event completed at `now`. A sleep that ended late is no fault of the ops that follow, and
  // does not push them back.
  void completed(Nanos now) {
    slip_ = std::max(now - due_, Nanos{0});
    lateness_ += slip_;
  }

  [[nodiscard]] Nanos due() const { return due_; }
  [[nodiscard]] int64_t overruns() const { return overruns_; }
  // Sum over the events of how long after their modelled end they completed.
  [[nodiscard]] Nanos lateness() const { return lateness_; }

 private:
  Nanos due_{0};
  Nanos slip_{0};
  int64_t late_ops_ = 0;  // the last ones in a row
  int64_t overruns_ = 0;
  Nanos lateness_{0};
};

}  // namespace tandem::device
