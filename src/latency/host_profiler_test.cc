#include "latency/host_profiler.h"

#include <gtest/gtest.h>

#include <random>

namespace tandem::latency {
namespace {

// A second tier whose parts take what formulas say, with noise.
class TestTier final : public HostMeter {
 public:
  TestTier(const HostLimits& limits, double noise, ManualClock& clock)
      : limits_(limits), noise_(noise), clock_(clock) {}

  [[nodiscard]] HostLimits limits() const override { return limits_; }
  Result<HostAttended> attention(int32_t rows, int32_t context) override {
    EXPECT_LE(rows, limits_.rows);
    EXPECT_LE(context, limits_.context);
    EXPECT_LE(int64_t{rows} * context, limits_.tokens);
    return HostAttended{.took = pass(9000 + 700.0 * rows + 1.5 * rows * context),
                        .busy = Nanos{static_cast<int64_t>(200.0 * rows + 1.2 * rows * context)}};
  }
  Result<Nanos> copy(LinkWay way, int64_t bytes) override {
    EXPECT_LE(bytes, limits_.copy_bytes);
    const bool waits = held_up_ && ++copies_ % 3 != 0;  // for a core
    return pass((way == LinkWay::kToHost ? 12000 : 15000) + 0.2 * static_cast<double>(bytes) +
                (waits ? 4e6 : 0.0));
  }
  // From now on two of three copies wait for a core.
  void hold_up() { held_up_ = true; }
  // No visitor comes back in this many measurements of steps from now on.
  void hold_visitors(int32_t steps) { steps_held_ = steps; }
  Result<TierSteps> steps(int32_t residents, int32_t visitors) override {
    EXPECT_LE(visitors, limits_.visitors);
    const bool held = visitors > 0 && steps_held_-- > 0;
    const double visits = held ? 0 : visitors * 0.9 * 8 / 2;
    // Rows cost 1000 each in the eight layers together, see costs().
    const double step = 1e6 + 2e4 * residents + visits * (250 + 1000.0 / 8);
    return TierSteps{.step_nanos = static_cast<double>(pass(step).count()),
                     .engine_nanos = 2 * 15000 + visits * 300,
                     .visits = visits,
                     .resident_context = residents * 30.0,
                     .groups = 2,
                     .hop = {.to_host = 3072, .from_host = 1024}};
  }
  Result<TierSteps> lane_steps(int32_t residents) override {
    return TierSteps{.step_nanos = static_cast<double>(pass(1e6 + 2e4 * residents).count()),
                     .engine_nanos = 9 * 4000,
                     .resident_context = residents * 30.0,
                     .groups = 9};
  }

  static ModularCosts costs() {
    return simple_model({.layers = 8, .fixed = Nanos{100}, .per_row = Nanos{1000}}).costs();
  }

 private:
  Nanos pass(double nanos) {
    std::uniform_real_distribution<double> off(1 - noise_, 1 + noise_);
    const Nanos took{static_cast<int64_t>(nanos * off(random_))};
    clock_.advance(took);
    return took;
  }
  const HostLimits limits_;
  const double noise_;
  ManualClock& clock_;
  std::mt19937 random_{3};
  bool held_up_ = false;
  int64_t copies_ = 0;
  int32_t steps_held_ = 0;
};

const HostLimits kRoomy{.rows = 64,
                        .context = 4096,
                        .tokens = 32768,
                        .copy_bytes = 1 << 24,
                        .residents = 8,
                        .visitors = 32};

TEST(HostProfiler, FindsWhatEachPartTakes) {
  ManualClock clock;
  TestTier tier(kRoomy, 0.02, clock);
  double shown = 0;
  const auto found =
      measure_host(tier, TestTier::costs(), {}, clock, [&](double share, std::string_view) {
        EXPECT_GE(share, 0);
        EXPECT_LE(share, 1);
        shown = share;
      });
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_NEAR(found->times.attention.per_context_nanos, 1.5, 0.05);
  EXPECT_NEAR(found->times.attention.per_row_nanos, 700, 70);
  EXPECT_NEAR(found->times.attention.fixed_nanos, 9000, 900);
  EXPECT_NEAR(found->times.to_host.alpha_nanos, 12000, 600);
  EXPECT_NEAR(found->times.from_host.alpha_nanos, 15000, 700);
  EXPECT_NEAR(found->times.from_host.beta_nanos, 0.2, 0.01);
  EXPECT_NEAR(found->times.launch.per_group_nanos, 15000, 1);
  EXPECT_NEAR(found->times.launch.per_lane_stage_nanos, 4000, 1);
  EXPECT_NEAR(found->times.busy.per_context_nanos, 1.2, 0.01);
  EXPECT_NEAR(found->times.busy.per_row_nanos, 200, 10);
  EXPECT_EQ(found->times.hop.to_host, 3072);
  EXPECT_EQ(found->times.hop.from_host, 1024);
  EXPECT_NEAR(found->times.launch.per_visit_nanos, 300, 1);
  EXPECT_GT(found->attention_accuracy.mean, 0.95);
  EXPECT_GT(found->link_accuracy.mean, 0.95);
  EXPECT_GT(shown, 0.9);
}

TEST(HostProfiler, StepsWithoutVisitsAreMeasuredAgain) {
  ManualClock clock;
  TestTier tier(kRoomy, 0.02, clock);
  tier.hold_visitors(15);
  const auto found = measure_host(tier, TestTier::costs(), {}, clock, {});
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_NEAR(found->times.launch.per_visit_nanos, 300, 1);
}

TEST(HostProfiler, AHostThatBringsNothingBackIsAnErrorWithItsCure) {
  ManualClock clock;
  TestTier tier(kRoomy, 0.02, clock);
  tier.hold_visitors(1 << 20);
  const auto found = measure_host(tier, TestTier::costs(), {}, clock, {});
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(found.error().message.find("the machine is too busy"), std::string::npos);
}

TEST(HostProfiler, ALinkIsFoundOnABusyMachineInNoTime) {
  ManualClock clock;
  TestTier tier(kRoomy, 0.02, clock);
  tier.hold_up();
  HostProfilerOptions options;
  options.time = Nanos{1};
  const auto found = measure_host(tier, TestTier::costs(), options, clock, {});
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_NEAR(found->times.to_host.alpha_nanos, 12000, 1200);
  EXPECT_NEAR(found->times.from_host.alpha_nanos, 15000, 1500);
  EXPECT_NEAR(found->times.to_host.beta_nanos, 0.2, 0.02);
  EXPECT_NEAR(found->times.from_host.beta_nanos, 0.2, 0.02);
}

TEST(HostProfiler, AVisitorsCostIsWhatItsRowDoesNotExplain) {
  ManualClock clock;
  TestTier tier(kRoomy, 0, clock);
  const auto found = measure_host(tier, TestTier::costs(), {}, clock, {});
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_NEAR(found->per_visit, 250, 2);
}

TEST(HostProfiler, SmallTiersAreMeasuredWithinTheirLimits) {
  ManualClock clock;
  for (const HostLimits& limits :
       {HostLimits{
            .rows = 1, .context = 7, .tokens = 7, .copy_bytes = 100, .residents = 1, .visitors = 1},
        HostLimits{.rows = 3,
        .context = 50,
        .tokens = 60,
        .copy_bytes = 5000,
        .residents = 2,
        .visitors = 3}}) {
    TestTier tier(limits, 0.01, clock);
    const auto found = measure_host(tier, TestTier::costs(), {}, clock, {});
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_GT(found->times.attention_time(1, 7), Nanos{5000});
    EXPECT_GT(found->times.to_host.nanos(100), 5000);
  }
}

TEST(HostProfiler, WhatHasNoRoomForAnythingIsRefusedWithNumbers) {
  ManualClock clock;
  TestTier tier({.rows = 4, .context = 0}, 0, clock);
  const auto found = measure_host(tier, TestTier::costs(), {}, clock, {});
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("4 rows, a context of 0"), std::string::npos);
}

}  // namespace
}  // namespace tandem::latency
