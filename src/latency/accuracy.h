// How well predictions met what was measured: 1 - |predicted - measured| / measured of each, as
// OmniServe counts it (5.4.1). Plain functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem::latency {

struct Accuracy {
  int64_t batches = 0;
  double mean = 0;
  double p90 = 0;  // nine of ten batches were met at least so well
  double p99 = 0;
};

class AccuracyMeter {
 public:
  // Needs measured > 0.
  void add(double predicted, double measured);
  [[nodiscard]] Accuracy accuracy() const;

 private:
  std::vector<double> met_;
};

}  // namespace tandem::latency
