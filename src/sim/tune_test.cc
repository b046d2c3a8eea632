#include "sim/tune.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace tandem::sim {
namespace {

constexpr int32_t kMilli = 1000;  // settings are microseconds of a step

const std::vector<TuneRun> kOnline = {{.metrics_ms = {10}}};

using RunOne = std::function<SettingRuns(int32_t setting)>;

RunSettings each(const RunOne& run) {
  return [run](const std::vector<int32_t>& settings) -> Result<std::vector<SettingRuns>> {
    std::vector<SettingRuns> runs;
    for (const int32_t setting : settings) {
      runs.push_back(run(setting));
    }
    return runs;
  };
}

TuneOptions p99_within(double tolerance) {
  TuneOptions options;
  options.min = kMilli;
  options.max = 2000 * kMilli;
  options.show = [](int32_t setting) { return std::to_string(setting); };
  options.goals = {{.metric = TuneMetric::kP99Tbt, .tolerance = tolerance}};
  return options;
}

// The metric is the budget, but at least 10 ms.
SettingRuns as_long_as_the_budget(int32_t budget) {
  const double millis = budget / 1e3;
  return std::vector<TuneRun>{
      {.metrics_ms = {std::max(10.0, millis)}, .offline_tokens_per_s = millis}};
}

TEST(Tune, FindsTheLargestBudgetWithinTheTolerance) {
  const Tuned tuned = tune_setting(p99_within(0.5), kOnline, each(as_long_as_the_budget)).value();
  EXPECT_EQ(tuned.allowed_ms, std::vector<std::vector<double>>{{15}});
  EXPECT_LE(tuned.best.setting, 15 * kMilli);
  EXPECT_GE(tuned.best.setting, 14'700);
  EXPECT_TRUE(tuned.best.kept);
  EXPECT_LE(tuned.tried.size(), 12U + 8 + 3);
}

TEST(Tune, ASmallerBudgetThatServesMoreIsTaken) {
  // A peak at 20 ms, far below the largest budget that keeps the tolerance.
  const auto run = [](int32_t budget) -> SettingRuns {
    const double millis = budget / 1e3;
    const double served = millis < 17 ? 20 * millis : millis < 24 ? 500 : 430;
    return std::vector<TuneRun>{{.metrics_ms = {millis}, .offline_tokens_per_s = served}};
  };
  const std::vector<TuneRun> online = {{.metrics_ms = {50}}};
  const Tuned tuned = tune_setting(p99_within(0.1), online, each(run)).value();
  EXPECT_EQ(tuned.best.offline_tokens_per_s(), 500);
  EXPECT_GE(tuned.best.setting, 17 * kMilli);
  EXPECT_LE(tuned.best.setting, 20 * kMilli);  // the smallest setting that was tried
}

TEST(Tune, WhereBudgetsBeyondTheFullestStepChangeNothingSmallerOnesAreTriedAllTheSame) {
  const auto run = [](int32_t budget) -> SettingRuns {
    const double millis = std::min(budget / 1e3, 90.0);
    const double served = millis < 17 ? 20 * millis : millis < 24 ? 500 : 430;
    return std::vector<TuneRun>{{.metrics_ms = {millis}, .offline_tokens_per_s = served}};
  };
  const std::vector<TuneRun> online = {{.metrics_ms = {80}}};
  const Tuned tuned = tune_setting(p99_within(0.5), online, each(run)).value();
  EXPECT_EQ(tuned.best.offline_tokens_per_s(), 500);
  EXPECT_LE(tuned.tried.size(), 40U);
}

TEST(Tune, WithoutBestEffortServedTheLargestBudgetIsTaken) {
  const auto run = [](int32_t) -> SettingRuns { return kOnline; };
  const Tuned tuned = tune_setting(p99_within(0.05), kOnline, each(run)).value();
  EXPECT_EQ(tuned.best.setting, 2000 * kMilli);
  EXPECT_EQ(tuned.tried.size(), 1U);
}

TEST(Tune, WhereEveryBudgetServesTheSameNoOtherMetricSuffers) {
  // Little best effort: all of it is served, but small budgets make prompts wait.
  const auto run = [](int32_t budget) -> SettingRuns {
    const double ttft = budget < 20 * kMilli ? 300 : 100;
    return std::vector<TuneRun>{
        {.metrics_ms = {10}, .all_ms = {10, 10, ttft, ttft}, .offline_tokens_per_s = 30}};
  };
  const Tuned tuned = tune_setting(p99_within(0.1), kOnline, each(run)).value();
  EXPECT_GE(tuned.best.setting, 20 * kMilli);
  EXPECT_LE(tuned.best.setting, 24 * kMilli);
}

TEST(Tune, NothingOutsideTheRangeIsTried) {
  TuneOptions options = p99_within(0.5);
  options.min = 14 * kMilli;
  const Tuned tuned = tune_setting(options, kOnline, each(as_long_as_the_budget)).value();
  for (const TunedSetting& tried : tuned.tried) {
    EXPECT_GE(tried.setting, options.min);
    EXPECT_LE(tried.setting, options.max);
  }
}

TEST(Tune, ABudgetThatIsTooSmallToServeByIsNotTheAnswer) {
  const auto run = [](int32_t budget) {
    return budget < 9 * kMilli ? SettingRuns() : as_long_as_the_budget(budget);
  };
  EXPECT_GE(tune_setting(p99_within(0.1), kOnline, each(run)).value().best.setting, 10 * kMilli);
}

TEST(Tune, WhereNoBudgetKeepsItTheErrorSaysWhatTheLeastCameTo) {
  const auto run = [](int32_t) -> SettingRuns {
    return std::vector<TuneRun>{{.metrics_ms = {11}, .offline_tokens_per_s = 5}};
  };
  const auto tuned = tune_setting(p99_within(0.05), kOnline, each(run));
  ASSERT_FALSE(tuned.ok());
  EXPECT_NE(tuned.error().message.find("p99_tbt of 11.00 ms (allowed: 10.50)"), std::string::npos)
      << tuned.error().message;
}

TEST(Tune, AnErrorOfARunIsTheSearchs) {
  const auto run = [](const std::vector<int32_t>&) -> Result<std::vector<SettingRuns>> {
    return invalid_argument("no such model", "model");
  };
  EXPECT_EQ(tune_setting(p99_within(0.05), kOnline, run).error().message, "no such model");
}

TEST(Tune, SeveralGoalsAreAllKept) {
  TuneOptions options = p99_within(1);
  options.goals.push_back({.metric = TuneMetric::kMeanTtft, .tolerance = 0.2});
  const auto run = [](int32_t budget) -> SettingRuns {
    const double millis = budget / 1e3;
    return std::vector<TuneRun>{
        {.metrics_ms = {millis, 100 + millis}, .offline_tokens_per_s = millis}};
  };
  const std::vector<TuneRun> online = {{.metrics_ms = {10, 100}}};
  const Tuned tuned = tune_setting(options, online, each(run)).value();
  EXPECT_LE(tuned.best.setting, 20 * kMilli);
  EXPECT_GE(tuned.best.setting, 19'600);
}

TEST(Tune, GoalsAreKeptWithEachLoad) {
  const auto run = [](int32_t budget) -> SettingRuns {
    const double millis = budget / 1e3;
    return std::vector<TuneRun>{{.metrics_ms = {millis}, .offline_tokens_per_s = millis},
                                {.metrics_ms = {millis + 3}, .offline_tokens_per_s = millis + 2}};
  };
  const std::vector<TuneRun> online = {{.metrics_ms = {10}}, {.metrics_ms = {11}}};
  const Tuned tuned = tune_setting(p99_within(0.5), online, each(run)).value();
  EXPECT_LE(tuned.best.setting, 13'500);  // 16.5 ms with the second load, 15 ms with the first
  EXPECT_GE(tuned.best.setting, 13'200);
  EXPECT_EQ(nearest_load(tuned, tuned.best, 0), 1U);
  EXPECT_DOUBLE_EQ(tuned.best.offline_tokens_per_s(), tuned.best.setting / 1e3 + 1);
  // Out of reach: the message names the load.
  const auto none =
      tune_setting(p99_within(0.01), {{.metrics_ms = {10}}, {.metrics_ms = {2}}}, each(run));
  EXPECT_NE(none.error().message.find("(allowed: 2.02)"), std::string::npos)
      << none.error().message;
}

TEST(Tune, ABudgetBelowWhichPromptsWaitIsNotTakenForOneThatIsTooLarge) {
  const auto run = [](int32_t budget) -> SettingRuns {
    const double millis = budget / 1e3;
    return std::vector<TuneRun>{
        {.metrics_ms = {millis < 20 ? 10'000 : 30 + millis}, .offline_tokens_per_s = millis}};
  };
  const std::vector<TuneRun> online = {{.metrics_ms = {50}}};
  const Tuned tuned = tune_setting(p99_within(0.1), online, each(run)).value();
  EXPECT_LE(tuned.best.setting, 25 * kMilli);
  EXPECT_GE(tuned.best.setting, 24 * kMilli);
}

TEST(Tune, ABudgetUnderWhichRequestsAreLostIsNotKept) {
  const auto run = [](int32_t budget) -> SettingRuns {
    SettingRuns came = as_long_as_the_budget(budget);
    came->front().online_lost = budget < 20 * kMilli ? 5 : 0;
    came->front().metrics_ms = {budget < 20 * kMilli ? 10.0 : came->front().metrics_ms.front()};
    return came;
  };
  EXPECT_GE(tune_setting(p99_within(1.5), kOnline, each(run)).value().best.setting, 24 * kMilli);
  EXPECT_FALSE(tune_setting(p99_within(0.5), kOnline, each(run)).ok());
}

}  // namespace
}  // namespace tandem::sim
