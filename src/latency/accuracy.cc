#include "latency/accuracy.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tandem::latency {

void AccuracyMeter::add(double predicted, double measured) {
  met_.push_back(1 - std::abs(predicted - measured) / measured);
}

Accuracy AccuracyMeter::accuracy() const {
  if (met_.empty()) {
    return {};
  }
  std::vector<double> sorted = met_;
  std::ranges::sort(sorted);
  const auto count = static_cast<double>(sorted.size());
  const auto exceeded_by = [&](double share) {
    return sorted[static_cast<size_t>(std::floor((1 - share) * (count - 1)))];
  };
  return {.batches = static_cast<int64_t>(sorted.size()),
          .mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / count,
          .p90 = exceeded_by(0.9),
          .p99 = exceeded_by(0.99)};
}

}  // namespace tandem::latency
