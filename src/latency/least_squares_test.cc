#include "latency/least_squares.h"

#include <gtest/gtest.h>

#include <random>

namespace tandem::latency {
namespace {

std::vector<Equation> equations(const std::vector<double>& truth, int count, double noise,
                                uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> feature(0, 100);
  std::uniform_real_distribution<double> off(1 - noise, 1 + noise);
  std::vector<Equation> made;
  for (int i = 0; i < count; ++i) {
    Equation equation;
    for (size_t j = 0; j < truth.size(); ++j) {
      equation.features.push_back(j == 0 ? 1 : feature(random));
      equation.value += equation.features.back() * truth[j];
    }
    equation.value *= off(random);
    made.push_back(equation);
  }
  return made;
}

TEST(FitNonnegative, FindsWhatWasThere) {
  const std::vector<double> truth = {1000, 3, 0.002, 500};
  const std::vector<double> found = fit_nonnegative(equations(truth, 100, 0, 1), {0, 0, 0, 0});
  for (size_t i = 0; i < truth.size(); ++i) {
    EXPECT_NEAR(found[i], truth[i], 0.01 * truth[i] + 0.01) << i;
  }
}

TEST(FitNonnegative, NeverGivesANegativeCoefficientEvenWhereOneWouldFitBetter) {
  // Falls with the second feature.
  std::vector<Equation> falling;
  for (int i = 1; i <= 20; ++i) {
    falling.push_back({{1, static_cast<double>(i)}, 100.0 - i});
  }
  const std::vector<double> found = fit_nonnegative(falling, {0, 0});
  EXPECT_EQ(found[1], 0);
  EXPECT_NEAR(found[0], 89, 3);
}

TEST(FitNonnegative, AFewStalledStepsChangeLittle) {
  const std::vector<double> truth = {1000, 30};
  std::vector<Equation> noisy = equations(truth, 200, 0.02, 2);
  for (size_t i = 0; i < noisy.size(); i += 10) {
    noisy[i].value *= 5;
  }
  const std::vector<double> found = fit_nonnegative(noisy, {0, 0});
  EXPECT_NEAR(found[0], 1000, 60);
  EXPECT_NEAR(found[1], 30, 1.5);
}

TEST(FitNonnegative, AFeatureThatNeverOccursKeepsItsStart) {
  const std::vector<Equation> one = {{{2, 0}, 10}};
  EXPECT_EQ(fit_nonnegative(one, {0, 7})[1], 7);
  EXPECT_EQ(fit_nonnegative({}, {1, 2}), (std::vector<double>{1, 2}));
}

}  // namespace
}  // namespace tandem::latency
