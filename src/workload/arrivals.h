// When requests arrive: an endless, non-decreasing sequence of times since the start of a run,
// drawn from a seed. Knows nothing of what arrives. Threads: one owner at a time.
#pragma once

#include <cstdint>
#include <limits>

#include "base/clock.h"
#include "base/result.h"
#include "workload/random.h"

namespace tandem::workload {

enum class ArrivalKind : uint8_t {
  kRandom,  // gaps of a gamma distribution; burstiness 1 is a Poisson process
  kFixed,   // equal gaps
  kBursts,  // a Poisson process whose rate is drawn anew every `burst_every`
};

struct ArrivalOptions {
  ArrivalKind kind = ArrivalKind::kRandom;
  double rate_per_s = std::numeric_limits<double>::infinity();  // infinite: all at once, at 0
  double burstiness = 1.0;  // shape of the gamma distribution: below 1 burstier, above 1 more even
  Nanos burst_every = std::chrono::seconds(5);
  double burst_low_per_s = 1.0;  // rates are drawn uniformly from low to high
  double burst_high_per_s = 8.0;
};

// Names the field that no run could be made from.
Status check(const ArrivalOptions& options);

class Arrivals {
 public:
  // `options` must have passed check().
  Arrivals(const ArrivalOptions& options, uint64_t seed);
  Nanos next();

 private:
  void draw_until(double want);

  ArrivalOptions options_;
  Random random_;
  double now_s_ = 0;
  double window_end_s_ = 0;
  double window_rate_per_s_ = 0;
};

}  // namespace tandem::workload
