#include "bench/tiers_bounds.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::bench {
namespace {

TiersWindow window_of(double step_seconds) {
  TiersWindow window;
  window.steps = 10;
  window.seconds = 10 * step_seconds;
  window.step_seconds = step_seconds;
  return window;
}

// Contexts have grown between the windows of residents alone, so a step in between takes as long as
// that window lies between these.
TEST(TiersAlone, AStepIsComparedAtEqualContexts) {
  const TiersWindow before{.middle_step = 200, .step_seconds = 0.010};
  const TiersWindow after{.middle_step = 1200, .step_seconds = 0.012};
  EXPECT_DOUBLE_EQ(alone_seconds({.middle_step = 700}, before, after), 0.011);
  EXPECT_DOUBLE_EQ(alone_seconds(before, before, after), 0.010);
  EXPECT_DOUBLE_EQ(alone_seconds(after, before, after), 0.012);
}

TEST(TiersWindows, EachMayTakeItsPartOfTheStepsThatAreLeft) {
  constexpr Nanos kSecond = std::chrono::seconds(1);
  EXPECT_EQ(steps_of_window(4000, kSecond, 4 * kSecond), 1000);
  EXPECT_EQ(steps_of_window(4000, 4 * kSecond, 4 * kSecond), 4000);
  EXPECT_EQ(steps_of_window(4000, kSecond, Nanos{0}), 4000);
  EXPECT_EQ(steps_of_window(3, kSecond, 4 * kSecond), 1);
  EXPECT_EQ(steps_of_window(-5, kSecond, kSecond), 1);
}

TEST(TiersBounds, MediansAreTakenOfEachFigureAlone) {
  std::vector<TiersWindow> windows = {window_of(1), window_of(3), window_of(2)};
  windows[0].hops = 30;
  windows[1].hops = 10;
  windows[2].hops = 20;
  const TiersWindow median = medians(windows);
  EXPECT_EQ(median.step_seconds, 2);
  EXPECT_EQ(median.hops, 20);
  EXPECT_EQ(median.steps, 10);
  EXPECT_EQ(medians({}).steps, 0);
}

TEST(TiersBounds, EachLimitAloneAndTheLeastOfThem) {
  TiersWindow live = window_of(0.01);
  live.hops = 1000;
  live.hop_bytes_out = 2000;  // 2 bytes a hop
  live.hop_bytes_back = 4000;
  live.host_rate = 8000;
  live.attended_bytes = 100;
  const TiersSetup setup{
      .layers = 4, .offloaded = 50, .host_cores = 2, .link_bytes_per_second = 800};
  const TiersBound bound = bound_of(live, setup);
  EXPECT_DOUBLE_EQ(bound.sequences, 0.97 * 50 / (5 * 0.01));
  EXPECT_DOUBLE_EQ(bound.host_bandwidth, 2 * 8000 / (4 * 100.0));
  EXPECT_DOUBLE_EQ(bound.link, 800 / (4 * 4.0));
  EXPECT_DOUBLE_EQ(bound.least(), 40);
  EXPECT_STREQ(bound.regime(), "host bandwidth");
}

TEST(TiersBounds, TheRegimeIsThatOfTheLeastBound) {
  EXPECT_STREQ((TiersBound{.sequences = 1, .host_bandwidth = 2, .link = 3}).regime(),
               "host memory (sequences)");
  EXPECT_STREQ((TiersBound{.sequences = 3, .host_bandwidth = 2, .link = 1}).regime(), "link");
}

}  // namespace
}  // namespace tandem::bench
