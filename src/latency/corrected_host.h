// The host's times, corrected while it serves: what the workers took for attention moves a factor,
// as steps move the factors of corrected_model.h. It stays between 0.5 and 2.
//
// What is compared is the time that a worker is at work, not the time until a result is back, which
// depends on how the work arrives. Where a profile does not know that time nothing is learnt.
//
// Engine thread.
#pragma once

#include <cstdint>

#include "base/host_work.h"
#include "latency/host_times.h"

namespace tandem::latency {

class CorrectedHost {
 public:
  explicit CorrectedHost(const HostTimes& profiled) : times_(profiled) {}
  // As corrected so far; the reference is good as long as this object.
  [[nodiscard]] const HostTimes& times() const { return times_; }
  // Work is summed up until there are some milliseconds, so that tasks under way at either end
  // count little.
  void observe(const HostWork& work);

 private:
  HostTimes times_;
  HostWork sum_;
  int64_t observed_ = 0;
};

}  // namespace tandem::latency
