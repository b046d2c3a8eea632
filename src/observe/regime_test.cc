#include "observe/regime.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/units.h"

namespace tandem::observe {
namespace {

using namespace std::chrono_literals;

// Twelve seconds of steps of 25 ms with `rows` resident rows beside 64 offloaded sequences of a
// model of 4 layers; 40 tokens of them a second.
struct Run {
  Nanos attention_per_second{100ms};  // of all workers
  Nanos returning_per_second{10ms};
  int32_t rows = 100;
  int64_t offloaded = 64;
};

std::optional<RegimeLimits> limits_of(const Run& run) {
  RegimeMeter meter;
  TierRecord sums{.counts = {.workers = 2, .layers = 4}, .max_rows = 256};
  for (int i = 0; i <= 480; ++i) {
    meter.add_tiers(sums, i * Nanos(25ms));
    StepRecord step;
    step.duration = 25ms;
    step.resident_rows = run.rows;
    meter.add_step(step, run.offloaded);
    sums.counts.hops += 4;
    sums.counts.bytes_to_host += 4 * 300;
    sums.counts.bytes_from_host += 4 * 100;
    sums.counts.attention_time += run.attention_per_second / 40;
    sums.counts.returning_time += run.returning_per_second / 40;
  }
  return meter.limits();
}

TEST(Regime, FollowsTheFormulaWithMeasuredRates) {
  const std::optional<RegimeLimits> limits = limits_of({});
  ASSERT_TRUE(limits.has_value());
  EXPECT_NEAR(limits->tokens_per_second[0], 0.97 * 64 / (5 * 0.025), 1);
  EXPECT_NEAR(limits->tokens_per_second[1], 40 * 2 / 0.1, 5);
  EXPECT_NEAR(limits->tokens_per_second[2], 40 / 0.01 / 3, 10);
  EXPECT_NEAR(limits->tokens_per_second[3], 156 / 0.025, 1);
  EXPECT_EQ(limits->lowest(), Regime::kHostMemory);
}

TEST(Regime, IsNamedByTheLowestLimit) {
  EXPECT_EQ(limits_of({.attention_per_second = 1900ms})->lowest(), Regime::kHostBandwidth);
  EXPECT_EQ(limits_of({.returning_per_second = 300ms})->lowest(), Regime::kLink);
  EXPECT_EQ(limits_of({.rows = 255})->lowest(), Regime::kDevice);
  EXPECT_EQ(limits_of({.offloaded = 1})->lowest(), Regime::kHostMemory);
}

// Best effort alone: most steps are short and hold visitors only, few are long and hold a prompt.
TEST(Regime, NoLimitIsBelowTheRateThatWasReached) {
  for (const int64_t hops : {4, 40, 400, 4000}) {
    RegimeMeter meter;
    TierRecord sums{.counts = {.workers = 2, .layers = 4}, .max_rows = 256};
    Nanos now{0};
    for (int i = 0; i <= 4000; ++i) {
      meter.add_tiers(sums, now);
      StepRecord step;
      step.resident_rows = i % 50 == 0 ? 200 : 0;
      step.duration = step.resident_rows > 0 ? 40ms : 2ms;
      now += step.duration;
      meter.add_step(step, 16);
      sums.counts.hops += hops;
      sums.counts.bytes_to_host += hops * 300;
      sums.counts.bytes_from_host += hops * 100;
      sums.counts.attention_time += 1ms;
      sums.counts.returning_time += 2ms;
    }
    const std::optional<RegimeLimits> limits = meter.limits();
    ASSERT_TRUE(limits.has_value());
    const double rate =
        static_cast<double>(sums.counts.hops) / sums.counts.layers / to_seconds(now);
    EXPECT_GE(limits->tokens_per_second[static_cast<size_t>(limits->lowest())], 0.95 * rate);
  }
}

TEST(Regime, IsUnknownWhileNothingIsOffloaded) {
  RegimeMeter meter;
  EXPECT_FALSE(meter.limits().has_value());
  StepRecord step;
  step.duration = 1ms;
  for (int i = 0; i < 100; ++i) {
    meter.add_step(step, 0);
    meter.add_tiers({.counts = {.workers = 1, .layers = 4}, .max_rows = 8}, i * Nanos(100ms));
  }
  EXPECT_FALSE(meter.limits().has_value());
}

TEST(Regime, WhatIsIdleDoesNotLimit) {
  const std::optional<RegimeLimits> limits =
      limits_of({.attention_per_second = 0ms, .returning_per_second = 0ms});
  EXPECT_TRUE(std::isinf(limits->tokens_per_second[1]));
  EXPECT_TRUE(std::isinf(limits->tokens_per_second[2]));
}

}  // namespace
}  // namespace tandem::observe
