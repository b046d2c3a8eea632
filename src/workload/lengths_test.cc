#include "workload/lengths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tandem::workload {
namespace {

std::vector<int32_t> draws(const Lengths& lengths, int count = 20000) {
  Random random(11);
  std::vector<int32_t> result;
  for (int i = 0; i < count; ++i) {
    result.push_back(lengths.draw(random));
  }
  return result;
}

std::pair<double, double> mean_and_deviation(const std::vector<int32_t>& values) {
  double sum = 0;
  double squares = 0;
  for (const int32_t v : values) {
    sum += v;
    squares += static_cast<double>(v) * v;
  }
  const double n = static_cast<double>(values.size());
  return {sum / n, std::sqrt(squares / n - sum / n * (sum / n))};
}

TEST(Lengths, APlainNumberIsFixed) {
  EXPECT_EQ(draws(*Lengths::parse("512"), 3), (std::vector<int32_t>{512, 512, 512}));
  EXPECT_EQ(draws(*Lengths::parse("fixed:7"), 2), (std::vector<int32_t>{7, 7}));
}

TEST(Lengths, UniformReachesBothBoundsAndNothingElse) {
  const std::vector<int32_t> found = draws(*Lengths::parse("uniform:3:6"));
  const auto [low, high] = std::ranges::minmax(found);
  EXPECT_EQ(low, 3);
  EXPECT_EQ(high, 6);
  EXPECT_NEAR(mean_and_deviation(found).first, 4.5, 0.05);
}

TEST(Lengths, NormalAndLognormalHaveTheGivenMeanAndDeviation) {
  for (const char* text : {"normal:512:100", "lognormal:512:100"}) {
    const auto [mean, deviation] = mean_and_deviation(draws(*Lengths::parse(text)));
    EXPECT_NEAR(mean, 512, 4) << text;
    EXPECT_NEAR(deviation, 100, 4) << text;
  }
}

TEST(Lengths, DrawsNeverFallBelowOneToken) {
  EXPECT_EQ(std::ranges::min(draws(*Lengths::parse("normal:2:50"))), 1);
}

TEST(Lengths, ValuesComeAsOftenAsTheyStandThere) {
  const std::vector<int32_t> found = draws(Lengths::values({10, 10, 10, 20}));
  EXPECT_NEAR(static_cast<double>(std::ranges::count(found, 10)) / 20000, 0.75, 0.02);
}

TEST(Lengths, EverythingElseIsRefused) {
  for (const char* text :
       {"", "abc", "0", "-5", "nan", "fixed", "fixed:1:2", "uniform:5", "uniform:9:3",
        "normal:10:nan", "normal:10:-1", "lognormal:0:1", "zipf:1:2", "1e30", "uniform:1:2:3"}) {
    EXPECT_FALSE(Lengths::parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace tandem::workload
