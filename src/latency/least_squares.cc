#include "latency/least_squares.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tandem::latency {
namespace {

constexpr int kRounds = 8;     // of weighing the equations anew
constexpr int kSweeps = 4000;  // over the coefficients, at most
constexpr double kSettled =
    1e-7;  // a sweep that changes nothing by more than this share is the last
// Beyond so many times the middle error an equation counts less, in inverse proportion (Huber).
constexpr double kOutlier = 2.0;
constexpr double kLeastScale = 0.005;  // errors below are not told apart

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

// Columns are scaled to length one, so that coefficients of all units move alike.
struct Problem {
  size_t columns = 0;
  std::vector<double> gram;   // [columns, columns]
  std::vector<double> right;  // [columns]
  std::vector<double> scale;  // [columns]; 0: the column is empty
};

Problem normal_equations(std::span<const Equation> equations, std::span<const double> weights,
                         size_t columns) {
  Problem problem{.columns = columns,
                  .gram = std::vector<double>(columns * columns, 0),
                  .right = std::vector<double>(columns, 0),
                  .scale = std::vector<double>(columns, 0)};
  for (size_t e = 0; e < equations.size(); ++e) {
    const Equation& equation = equations[e];
    const double weight = weights[e] / (equation.value * equation.value);
    for (size_t i = 0; i < columns; ++i) {
      const double weighed = weight * equation.features[i];
      if (weighed == 0) {
        continue;
      }
      problem.right[i] += weighed * equation.value;
      for (size_t j = 0; j < columns; ++j) {
        problem.gram[i * columns + j] += weighed * equation.features[j];
      }
    }
  }
  for (size_t i = 0; i < columns; ++i) {
    const double length = std::sqrt(problem.gram[i * columns + i]);
    problem.scale[i] = length > 0 ? 1 / length : 0;
  }
  for (size_t i = 0; i < columns; ++i) {
    problem.right[i] *= problem.scale[i];
    for (size_t j = 0; j < columns; ++j) {
      problem.gram[i * columns + j] *= problem.scale[i] * problem.scale[j];
    }
  }
  return problem;
}

// One coefficient after another is set to its best value >= 0, until nothing moves.
void descend(const Problem& problem, std::vector<double>& x) {
  const size_t n = problem.columns;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    double moved = 0;
    double largest = 0;
    for (size_t i = 0; i < n; ++i) {
      if (problem.scale[i] == 0) {
        continue;
      }
      const std::span<const double> row(&problem.gram[i * n], n);
      const double next = std::max(0.0, x[i] + problem.right[i] - dot(row, x));
      moved = std::max(moved, std::abs(next - x[i]));
      x[i] = next;
      largest = std::max(largest, next);
    }
    if (moved <= kSettled * largest) {
      return;
    }
  }
}

std::vector<double> errors_of(std::span<const Equation> equations, std::span<const double> x) {
  std::vector<double> errors;
  errors.reserve(equations.size());
  for (const Equation& equation : equations) {
    errors.push_back(std::abs(dot(equation.features, x) / equation.value - 1));
  }
  return errors;
}

}  // namespace

std::vector<double> fit_nonnegative(std::span<const Equation> equations,
                                    std::vector<double> start) {
  const size_t columns = start.size();
  for (const Equation& equation : equations) {
    CHECK(equation.features.size() == columns && equation.value > 0,
          "an equation of {} features for {} coefficients, value {}", equation.features.size(),
          columns, equation.value);
  }
  std::vector<double> x = std::move(start);
  if (equations.empty()) {
    return x;
  }
  std::vector<double> weights(equations.size(), 1);
  for (int round = 0; round < kRounds; ++round) {
    const Problem problem = normal_equations(equations, weights, columns);
    for (size_t i = 0; i < columns; ++i) {
      x[i] = problem.scale[i] > 0 ? x[i] / problem.scale[i] : x[i];
    }
    descend(problem, x);
    for (size_t i = 0; i < columns; ++i) {
      x[i] = problem.scale[i] > 0 ? x[i] * problem.scale[i] : x[i];
    }
    const std::vector<double> errors = errors_of(equations, x);
    std::vector<double> sorted = errors;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::ranges::nth_element(sorted, middle);
    const double limit = kOutlier * std::max(*middle, kLeastScale);
    for (size_t e = 0; e < errors.size(); ++e) {
      weights[e] = errors[e] <= limit ? 1 : limit / errors[e];
    }
  }
  return x;
}

}  // namespace tandem::latency
