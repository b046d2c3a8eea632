#include "latency/ladder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

namespace tandem::latency {
namespace {

Ladder made(std::vector<LadderPoint> points) {
  Result<Ladder> ladder = Ladder::through(std::move(points));
  EXPECT_TRUE(ladder.ok()) << ladder.error().message;
  return *std::move(ladder);
}

// Tiles of 64 rows: a jump at each, and a little for each row in between.
double tiled(int64_t rows) {
  const int64_t tiles = (rows + 63) / 64;
  return 1e6 + 5e5 * static_cast<double>(tiles) + 100 * static_cast<double>(rows);
}

TEST(Ladder, InterpolatesBetweenPointsAndGoesOnBeyondThem) {
  const Ladder ladder = made({{100, 200}, {1, 2}, {200, 300}});
  EXPECT_DOUBLE_EQ(ladder.nanos(0), 0);
  EXPECT_DOUBLE_EQ(ladder.nanos(1), 2);
  EXPECT_DOUBLE_EQ(ladder.nanos(50.5), 101);
  EXPECT_DOUBLE_EQ(ladder.nanos(150), 250);
  EXPECT_DOUBLE_EQ(ladder.nanos(200), 300);
  EXPECT_DOUBLE_EQ(ladder.nanos(1000), 1100);
}

TEST(Ladder, RowsBeyondAFlatEndAreNotFree) {
  EXPECT_DOUBLE_EQ(made({{1, 100}, {16, 263}, {64, 263}}).nanos(127), 263 + 63 * 163.0 / 63);
  EXPECT_DOUBLE_EQ(made({{1, 100}, {64, 100}}).nanos(1000), 100) << "nothing is known of a slope";
}

TEST(Ladder, PointsThatFallAreLevelledToTheirMean) {
  const Ladder ladder = made({{1, 10}, {2, 30}, {3, 20}, {4, 40}});
  EXPECT_DOUBLE_EQ(ladder.nanos(2), 25);
  EXPECT_DOUBLE_EQ(ladder.nanos(3), 25);
  EXPECT_DOUBLE_EQ(ladder.nanos(4), 40);
}

TEST(Ladder, NeverFallsWhateverWasMeasured) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> noise(0.5, 1.5);
  for (int round = 0; round < 50; ++round) {
    std::vector<LadderPoint> points;
    for (int64_t rows = 1; rows < 6000; rows += 1 + static_cast<int64_t>(random() % 500)) {
      points.push_back({rows, noise(random) * tiled(rows)});
    }
    const Ladder ladder = made(points);
    double before = 0;
    for (double rows = 0.25; rows < 8000; rows += 0.75) {
      ASSERT_GE(ladder.nanos(rows), before) << rows << " rows in round " << round;
      before = ladder.nanos(rows);
    }
  }
}

TEST(Ladder, RefusesPointsThatCannotBe) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  for (const std::vector<LadderPoint>& points :
       std::vector<std::vector<LadderPoint>>{{},
                                             {{0, 1}},
                                             {{-5, 1}},
                                             {{Ladder::kMostRows + 1, 1}},
                                             {{3, 1}, {3, 2}},
                                             {{3, nan}},
                                             {{3, infinite}},
                                             {{3, -1}}}) {
    EXPECT_FALSE(Ladder::through(points).ok());
  }
}

TEST(LadderSearch, FindsTheStepsOfTilesWithFewMeasurements) {
  int64_t asked = 0;
  std::set<int64_t> rows_asked;
  const double threshold = ladder_threshold(tiled(1), tiled(16), 0.001);
  const std::vector<LadderPoint> points = search_ladder(
      {.least_rows = 1, .most_rows = 512, .threshold_nanos = threshold, .points = 200},
      [&](int64_t rows) {
        ++asked;
        EXPECT_TRUE(rows_asked.insert(rows).second) << rows << " rows asked twice";
        return tiled(rows);
      });
  EXPECT_LT(asked, 120) << "of 512";
  const Ladder ladder = made(points);
  for (int64_t rows = 1; rows <= 512; ++rows) {
    EXPECT_NEAR(ladder.nanos(static_cast<double>(rows)), tiled(rows), 0.005 * tiled(rows)) << rows;
  }
}

TEST(LadderSearch, AFlatRangeTakesTwoMeasurements) {
  const std::vector<LadderPoint> points = search_ladder(
      {.least_rows = 1, .most_rows = 4096, .threshold_nanos = ladder_threshold(1000, 1000, 0.02)},
      [](int64_t rows) { return 1000 + static_cast<double>(rows % 7); });
  EXPECT_EQ(points.size(), 2U);
}

TEST(LadderSearch, KeepsToItsBudgetAndSpendsItWhereTheLadderIsSteep) {
  const std::vector<LadderPoint> points = search_ladder(
      {.least_rows = 1, .most_rows = 2048, .threshold_nanos = 0, .points = 24},
      [](int64_t rows) { return rows < 1024 ? 1000.0 : 1000.0 * static_cast<double>(rows); });
  EXPECT_LE(points.size(), 24U);
  const auto steep = std::ranges::count_if(points, [](const auto& p) { return p.rows >= 1000; });
  EXPECT_GT(steep, 10);
}

TEST(LadderSearch, OneRowIsARangeToo) {
  const std::vector<LadderPoint> points =
      search_ladder({.least_rows = 1, .most_rows = 1}, [](int64_t) { return 5.0; });
  EXPECT_EQ(points, (std::vector<LadderPoint>{{1, 5.0}}));
}

TEST(LadderThreshold, IsTheDifferenceOf1And16RowsButNotNoise) {
  EXPECT_DOUBLE_EQ(ladder_threshold(100, 160, 0.01), 60);
  EXPECT_DOUBLE_EQ(ladder_threshold(100, 100, 0.01), 1);
  EXPECT_DOUBLE_EQ(ladder_threshold(101, 100, 0.01), 1);
}

}  // namespace
}  // namespace tandem::latency
