#include "device/cuda/quickest_algorithm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tandem::device::cuda {
namespace {

// Algorithms that take fixed times, but for the noise; counts how often each is asked.
struct Times {
  std::vector<double> us;
  std::vector<double> noise = {0};  // in turn, shares of a time
  std::vector<int> calls = std::vector<int>(8, 0);
  std::vector<int> repeats = {};
  size_t next = 0;

  QuickestAlgorithm choose() {
    return quickest_algorithm(static_cast<int>(us.size()), [this](int algorithm, int times) {
      ++calls[static_cast<size_t>(algorithm)];
      repeats.push_back(times);
      return us[static_cast<size_t>(algorithm)] * times * (1 + noise[next++ % noise.size()]);
    });
  }
};

TEST(QuickestAlgorithm, IsFoundWhereverItIs) {
  for (size_t best = 0; best < 5; ++best) {
    Times times{.us = {50, 60, 55, 80, 52}};
    times.us[best] = 40;
    const QuickestAlgorithm found = times.choose();
    EXPECT_EQ(found.algorithm, static_cast<int>(best));
    EXPECT_DOUBLE_EQ(found.us, 40);
    EXPECT_DOUBLE_EQ(found.usual_us, best == 0 ? 40 : 50);
  }
}

TEST(QuickestAlgorithm, TheUsualStaysUnlessAnotherIsClearlyQuicker) {
  EXPECT_EQ((Times{.us = {50, 49}}).choose().algorithm, 0);
  EXPECT_EQ((Times{.us = {50, 48}}).choose().algorithm, 1);
  EXPECT_EQ((Times{.us = {50}}).choose().algorithm, 0);
}

// The best of each counts, so a single disturbance decides nothing.
TEST(QuickestAlgorithm, DisturbedTimesDoNotMislead) {
  for (size_t first = 0; first < 7; ++first) {
    Times times{.us = {50, 40, 70}, .noise = {0, 0.2, 0.01, 0, 0.9, 0.03, 0}};
    times.next = first;
    EXPECT_EQ(times.choose().algorithm, 1) << first;
  }
}

TEST(QuickestAlgorithm, FarBehindIsTimedTwice) {
  Times times{.us = {50, 90, 52}};
  times.choose();
  EXPECT_EQ(times.calls[1], 3) << "once for its kernels, twice for its time";
  EXPECT_EQ(times.calls[2], 4);
  EXPECT_EQ(times.calls[0], 5);
}

TEST(QuickestAlgorithm, ShortProductsAreTimedTogether) {
  for (const auto& [us, wanted] : {std::pair{0.5, 64}, {100.0, 30}, {5000.0, 2}}) {
    Times times{.us = {us, us}};
    times.choose();
    EXPECT_EQ(times.repeats.back(), wanted) << us;
  }
}

TEST(QuickestAlgorithm, OfAlgorithmsThatServeNothingNoneIsTaken) {
  Times first{.us = {kServesNone, 60, 50}};
  const QuickestAlgorithm found = first.choose();
  EXPECT_EQ(found.algorithm, 2);
  EXPECT_DOUBLE_EQ(found.us, 50);
  EXPECT_TRUE(std::isinf(found.usual_us));
  EXPECT_TRUE(std::isinf((Times{.us = {kServesNone, kServesNone}}).choose().us));
  EXPECT_EQ((Times{.us = {50, kServesNone}}).choose().algorithm, 0);
}

}  // namespace
}  // namespace tandem::device::cuda
