// Least squares with coefficients that are not negative, for models that must never say that more
// work is cheaper. Small problems: up to a few hundred columns. Plain functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem::latency {

// One equation: sum of features x coefficients = value. Needs value > 0; all finite.
struct Equation {
  std::vector<double> features;
  double value = 0;
};

// The coefficients >= 0 for which the values are met best in proportion: the sum of (predicted /
// value - 1)^2, in which equations that are off by much more than the others count less (a step
// that was interrupted says nothing about the model). `start` is where the search begins; its size
// is that of every equation's features.
std::vector<double> fit_nonnegative(std::span<const Equation> equations, std::vector<double> start);

}  // namespace tandem::latency
