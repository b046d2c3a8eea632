// Which of several algorithms is the quickest, by timing them in turn.
#pragma once

#include <functional>
#include <limits>

namespace tandem::device::cuda {

inline constexpr double kServesNone = std::numeric_limits<double>::infinity();

// Microseconds that algorithm number `algorithm` takes for `repeats` products in a row, or
// kServesNone.
using TimeAlgorithm = std::function<double(int algorithm, int repeats)>;

struct QuickestAlgorithm {
  int algorithm = 0;
  double us = 0;        // microseconds of a product; kServesNone: no algorithm serves
  double usual_us = 0;  // microseconds of a product by algorithm 0
};

// Number 0 stays unless another is clearly quicker: times vary.
QuickestAlgorithm quickest_algorithm(int count, const TimeAlgorithm& time);

}  // namespace tandem::device::cuda
