#include "latency/profiler.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "latency/random_batch.h"
#include "latency/test_machine.h"

namespace tandem::latency {
namespace {

constexpr ModelFacts kFacts{.layers = 4, .first_stage_share = 0.1};

Measured measured(const TestMachineOptions& machine, const ProfilerOptions& options) {
  ManualClock clock;
  TestMachine meter(machine, clock);
  Result<Measured> result = measure_steps(meter, kFacts, options, clock, {});
  EXPECT_TRUE(result.ok()) << result.error().message;
  return *std::move(result);
}

TEST(Profiler, LearnsAMachineThatRepeatsItself) {
  const Measured result = measured({}, {});
  EXPECT_GT(result.modular_accuracy.mean, 0.98);
  EXPECT_GT(result.modular_accuracy.p90, 0.95);
  EXPECT_DOUBLE_EQ(result.repeatability.mean, 1);
  EXPECT_GT(result.regression_accuracy.mean, 0.8);
  EXPECT_GT(result.table_accuracy.mean, 0.6);
  EXPECT_EQ(result.most_rows, 512);
}

TEST(Profiler, IsAsGoodAsANoisyMachineLetsItBe) {
  const Measured result = measured({.noise = 0.05}, {});
  EXPECT_GT(result.modular_accuracy.mean, result.repeatability.mean - 0.01);
}

TEST(Profiler, AShortProfileIsUsable) {
  EXPECT_GT(measured({.noise = 0.02}, short_profile()).modular_accuracy.mean, 0.93);
}

TEST(Profiler, KeepsToItsTimeAndStillAnswers) {
  for (const auto time : {std::chrono::milliseconds(1), std::chrono::milliseconds(200),
                          std::chrono::milliseconds(2000)}) {
    ManualClock clock;
    TestMachine meter({}, clock);
    const Result<Measured> result = measure_steps(meter, kFacts, {.time = time}, clock, {});
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_LT(clock.now(), time + std::chrono::milliseconds(500));
    EXPECT_GE(result->held_out.size(), 3U);
  }
}

StepShape prompt_of(int32_t rows) {
  StepShape shape;
  shape.add_prefill(0, rows, 1);
  return shape;
}

StepShape decodes_of(int32_t sequences, int32_t context) {
  StepShape shape;
  for (int32_t i = 0; i < sequences; ++i) {
    shape.add_decode(context);
  }
  return shape;
}

// One row takes a quarter of a second and more: the time suffices for a few dozen batches.
TEST(Profiler, KnowsWhatRowsCostOnASlowMachine) {
  for (const double slowness : {80.0, 150.0, 500.0}) {
    const TestMachineOptions machine{.slowness = slowness};
    const Measured result = measured(machine, short_profile());
    EXPECT_GE(result.most_rows, 64);
    const ModularModel modular = ModularModel::create(result.modular).value();
    const RegressionModel regression = RegressionModel::create(result.regression).value();
    for (const StepShape& shape : {prompt_of(512), decodes_of(32, 500), decodes_of(1, 1000)}) {
      const double truth = TestMachine::truth(shape) * slowness;
      EXPECT_NEAR(static_cast<double>(modular.step_time(shape).count()), truth, 0.25 * truth)
          << slowness << " times as slow, " << shape.rows() << " rows";
      // Its squares are learnt from few rows, so it errs further beyond them.
      const double share = static_cast<double>(regression.step_time(shape).count()) / truth;
      EXPECT_TRUE(share > 0.6 && share < 2.5)
          << slowness << " times as slow, " << shape.rows() << " rows: " << share;
    }
  }
}

// If no time is left to look for the ladder's points, it has the rows of the warm-up.
TEST(Profiler, TheLadderHasThePointsOfTheWarmUp) {
  const Measured result = measured({.slowness = 150}, short_profile());
  const std::vector<LadderPoint>& points = result.modular.dense.points();
  for (const int64_t rows : {1, 4, 16, 64}) {
    EXPECT_NE(std::ranges::find(points, rows, &LadderPoint::rows), points.end()) << rows;
  }
}

TEST(Profiler, IsJudgedByStepsBeyondThoseItLearntFrom) {
  const Measured result = measured({.slowness = 150}, short_profile());
  const auto rows = [](const HeldOut& held) { return held.sample.shape.rows(); };
  EXPECT_GT(std::ranges::max(result.held_out, {}, rows).sample.shape.rows(), result.most_rows);
}

TEST(Profiler, WorksWithTheLeastThatAServerMayHave) {
  const BatchLimits least{
      .rows = 1, .sequences = 1, .context = 16, .tokens = 64, .block_tokens = 16};
  EXPECT_GT(measured({.limits = least}, short_profile()).modular_accuracy.mean, 0.9);
}

TEST(Profiler, SaysWhereNoBatchIsPossible) {
  ManualClock clock;
  TestMachine meter({.limits = {.rows = 1, .sequences = 1, .context = 2, .tokens = 64}}, clock);
  EXPECT_FALSE(measure_steps(meter, kFacts, {}, clock, {}).ok());
}

TEST(Profiler, TellsHowFarItIs) {
  ManualClock clock;
  TestMachine meter({}, clock);
  double last = 0;
  int64_t told = 0;
  const auto progress = [&](double share, std::string_view what) {
    EXPECT_GE(share, last);
    EXPECT_LE(share, 1);
    EXPECT_FALSE(what.empty());
    last = share;
    ++told;
  };
  ASSERT_TRUE(measure_steps(meter, kFacts, short_profile(), clock, progress).ok());
  EXPECT_EQ(told, meter.measured());
}

TEST(RandomBatches, KeepToTheLimitsAndCoverAllRegimes) {
  for (const BatchLimits& limits :
       {BatchLimits{.rows = 512, .sequences = 64, .context = 1024, .tokens = 32768},
        BatchLimits{.rows = 1, .sequences = 1, .context = 4, .tokens = 64},
        BatchLimits{.rows = 2048, .sequences = 3, .context = 8192, .tokens = 256},
        BatchLimits{.rows = 3, .sequences = 256, .context = 5, .tokens = 100000}}) {
    RandomBatches random(limits, 3);
    std::array<int, kRegimes> seen{};
    for (int i = 0; i < 500; ++i) {
      const Batch batch = random.next();
      const Status status = check_batch(batch, limits);
      ASSERT_TRUE(status.ok()) << status.error().message;
      ++seen[static_cast<size_t>(regime_of(batch.shape()))];
    }
    EXPECT_GT(seen[static_cast<size_t>(Regime::kDecode)], 0);
    EXPECT_GT(seen[static_cast<size_t>(Regime::kPrefill)], 0);
  }
}

TEST(RandomBatches, AreTheSameForTheSameSeed) {
  const BatchLimits limits{.rows = 512, .sequences = 64, .context = 1024, .tokens = 32768};
  RandomBatches a(limits, 3);
  RandomBatches b(limits, 3);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(a.next().shape(), b.next().shape());
  }
}

TEST(CheckBatch, NamesWhatDoesNotFit) {
  const BatchLimits limits{.rows = 8, .sequences = 2, .context = 16, .tokens = 64};
  EXPECT_FALSE(check_batch({}, limits).ok());
  EXPECT_FALSE(check_batch({.prompts = {{.rows = 0}}, .contexts = {}}, limits).ok());
  EXPECT_FALSE(check_batch({.prompts = {{.rows = 9}}, .contexts = {}}, limits).ok());
  EXPECT_FALSE(check_batch({.prompts = {}, .contexts = {1}}, limits).ok());
  EXPECT_FALSE(check_batch({.prompts = {}, .contexts = {17}}, limits).ok());
  EXPECT_FALSE(check_batch({.prompts = {}, .contexts = {3, 3, 3}}, limits).ok());
  EXPECT_TRUE(check_batch({.prompts = {}, .contexts = {3, 3}}, limits).ok());
}

}  // namespace
}  // namespace tandem::latency
