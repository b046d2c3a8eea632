// Samples and what is said of them. Percentiles are interpolated linearly between neighbours, as
// numpy does it, so that figures can be compared with vLLM's. Threads: any.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tandem::loadgen {

// The percentiles that every distribution reports.
inline constexpr double kPercentiles[] = {1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9};

// `sorted` ascends. 0 when it is empty.
double percentile(const std::vector<double>& sorted, double percent);

struct Distribution {
  std::vector<double> sorted;
  double mean = 0;
  double deviation = 0;  // of the population

  [[nodiscard]] int64_t count() const { return static_cast<int64_t>(sorted.size()); }
  [[nodiscard]] double at(double percent) const { return percentile(sorted, percent); }
  [[nodiscard]] double least() const { return sorted.empty() ? 0 : sorted.front(); }
  [[nodiscard]] double most() const { return sorted.empty() ? 0 : sorted.back(); }
};

Distribution distribution_of(std::vector<double> samples);

}  // namespace tandem::loadgen
