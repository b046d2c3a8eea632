#include "workload/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace tandem::workload {
namespace {

std::vector<double> gaps(const ArrivalOptions& options, int count, uint64_t seed = 1) {
  Arrivals arrivals(options, seed);
  std::vector<double> result;
  double before = 0;
  for (int i = 0; i < count; ++i) {
    const double now = to_seconds(arrivals.next());
    result.push_back(now - before);
    before = now;
  }
  return result;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Standard deviation / mean: 1 for a Poisson process.
double variation(const std::vector<double>& values) {
  const double m = mean(values);
  double sum = 0;
  for (const double v : values) {
    sum += (v - m) * (v - m);
  }
  return std::sqrt(sum / static_cast<double>(values.size())) / m;
}

TEST(Arrivals, PoissonGapsHaveTheRateAndVariationOfAPoissonProcess) {
  const std::vector<double> found = gaps({.rate_per_s = 20}, 20000);
  EXPECT_NEAR(mean(found), 1.0 / 20, 0.001);
  EXPECT_NEAR(variation(found), 1.0, 0.03);
}

TEST(Arrivals, BurstinessIsTheShapeOfTheGammaDistribution) {
  for (const double burstiness : {0.25, 4.0}) {
    const std::vector<double> found = gaps({.rate_per_s = 10, .burstiness = burstiness}, 20000);
    EXPECT_NEAR(mean(found), 0.1, 0.005) << burstiness;
    EXPECT_NEAR(variation(found), 1 / std::sqrt(burstiness), 0.06) << burstiness;
  }
}

TEST(Arrivals, FixedGapsAreEqualAndBeginAtZero) {
  Arrivals arrivals({.kind = ArrivalKind::kFixed, .rate_per_s = 4}, 1);
  EXPECT_EQ(arrivals.next(), Nanos{0});
  EXPECT_EQ(arrivals.next(), std::chrono::milliseconds(250));
  EXPECT_EQ(arrivals.next(), std::chrono::milliseconds(500));
}

TEST(Arrivals, AnInfiniteRateSendsEverythingAtOnce) {
  Arrivals arrivals(ArrivalOptions{}, 1);
  EXPECT_EQ(arrivals.next(), Nanos{0});
  EXPECT_EQ(arrivals.next(), Nanos{0});
}

TEST(Arrivals, BurstsRedrawTheirRateBetweenTheBounds) {
  const ArrivalOptions options{.kind = ArrivalKind::kBursts,
                               .burst_every = std::chrono::seconds(100),
                               .burst_low_per_s = 2,
                               .burst_high_per_s = 20};
  Arrivals arrivals(options, 7);
  std::vector<int> per_window(40);
  while (true) {
    const auto window = static_cast<size_t>(to_seconds(arrivals.next()) / 100);
    if (window >= per_window.size()) {
      break;
    }
    ++per_window[window];
  }
  const auto [low, high] = std::ranges::minmax(per_window);
  EXPECT_GT(low, 100);    // 2/s less four deviations
  EXPECT_LT(high, 2200);  // 20/s and as many more
  EXPECT_GT(high, 2 * low);
}

TEST(Arrivals, AWindowWithoutArrivalsIsPassed) {
  Arrivals arrivals({.kind = ArrivalKind::kBursts, .burst_low_per_s = 0, .burst_high_per_s = 0.001},
                    3);
  EXPECT_GT(arrivals.next(), Nanos{0});
}

TEST(Arrivals, TheSameSeedGivesTheSameTimesAndAnotherDoesNot) {
  const ArrivalOptions options{.rate_per_s = 3, .burstiness = 0.5};
  EXPECT_EQ(gaps(options, 100, 5), gaps(options, 100, 5));
  EXPECT_NE(gaps(options, 100, 5), gaps(options, 100, 6));
}

TEST(Arrivals, ImpossibleOptionsAreNamed) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(check(ArrivalOptions{.rate_per_s = 0}).error().param, "request-rate");
  EXPECT_EQ(check(ArrivalOptions{.rate_per_s = nan}).error().param, "request-rate");
  EXPECT_EQ(check(ArrivalOptions{.burstiness = 0}).error().param, "burstiness");
  EXPECT_EQ(check(ArrivalOptions{.burstiness = nan}).error().param, "burstiness");
  ArrivalOptions bursts{.kind = ArrivalKind::kBursts};
  EXPECT_TRUE(check(bursts).ok());
  bursts.burst_low_per_s = 9;
  EXPECT_EQ(check(bursts).error().param, "burst-rates");
  bursts.burst_every = Nanos{0};
  EXPECT_EQ(check(bursts).error().param, "burst-every");
}

}  // namespace
}  // namespace tandem::workload
