#include "latency/corrected_host.h"

#include <gtest/gtest.h>

namespace tandem::latency {
namespace {

using std::chrono::milliseconds;

HostTimes profiled() {
  HostTimes host;
  host.attention = {.per_context_nanos = 10, .per_row_nanos = 2000, .fixed_nanos = 5000};
  host.busy = {.per_context_nanos = 8, .per_row_nanos = 500};
  return host;
}

// 1,000 rows of 100 tokens: workers are at work for 1.3 ms by the profile.
HostWork work(double factor) {
  return {
      .busy = Nanos{static_cast<int64_t>(1'300'000 * factor)}, .rows = 1000, .context = 100'000};
}

TEST(CorrectedHost, BendsAProfileThatIsOff) {
  for (const double truth : {0.6, 0.9, 1.0, 1.7}) {
    CorrectedHost host(profiled());
    for (int i = 0; i < 5000; ++i) {
      host.observe(work(truth));
    }
    EXPECT_NEAR(host.times().correction, truth, 0.02);
    const double believed = truth * (5000 + 3 * 2000 + 10 * 300);
    EXPECT_NEAR(static_cast<double>(host.times().attention_time(3, 300).count()), believed, 500)
        << "of attention, all its parts";
  }
}

TEST(CorrectedHost, StaysWithinTheBoundsOfStepTimes) {
  CorrectedHost host(profiled());
  for (int i = 0; i < 20'000; ++i) {
    host.observe(work(100));
  }
  EXPECT_EQ(host.times().correction, 2);
  for (int i = 0; i < 40'000; ++i) {
    host.observe(work(0.01));
  }
  EXPECT_EQ(host.times().correction, 0.5);
}

TEST(CorrectedHost, AStallChangesLittle) {
  CorrectedHost host(profiled());
  for (int i = 0; i < 5000; ++i) {
    host.observe(work(1));
  }
  host.observe({.busy = std::chrono::seconds(10), .rows = 1, .context = 1});
  for (int i = 0; i < 20; ++i) {
    host.observe(work(1));
  }
  EXPECT_LT(host.times().correction, 1.01);
}

TEST(CorrectedHost, LearnsNothingWhereTheProfileKnowsNoTimeAtWork) {
  HostTimes earlier = profiled();
  earlier.busy = {};
  CorrectedHost host(earlier);
  for (int i = 0; i < 1000; ++i) {
    host.observe(work(2));
  }
  EXPECT_EQ(host.times().correction, 1);
}

TEST(CorrectedHost, NoWorkTeachesNothing) {
  CorrectedHost host(profiled());
  host.observe({});
  host.observe({.busy = milliseconds(-5), .rows = 1'000'000, .context = 0});
  EXPECT_EQ(host.times().correction, 1);
}

}  // namespace
}  // namespace tandem::latency
