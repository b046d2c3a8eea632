#include "loadgen/statistics.h"

#include <algorithm>
#include <cmath>

namespace tandem::loadgen {

double percentile(const std::vector<double>& sorted, double percent) {
  if (sorted.empty()) {
    return 0;
  }
  const double place =
      std::clamp(percent, 0.0, 100.0) / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - static_cast<double>(below));
}

Distribution distribution_of(std::vector<double> samples) {
  Distribution result;
  std::ranges::sort(samples);
  const auto n = static_cast<double>(samples.size());
  for (const double sample : samples) {
    result.mean += sample / n;
  }
  double squares = 0;
  for (const double sample : samples) {
    squares += (sample - result.mean) * (sample - result.mean);
  }
  result.deviation = samples.empty() ? 0 : std::sqrt(squares / n);
  result.sorted = std::move(samples);
  return result;
}

}  // namespace tandem::loadgen
