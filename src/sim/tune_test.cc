#include "sim/tune.h"

#include <gtest/gtest.h>

namespace tandem::sim {
namespace {

using std::chrono::milliseconds;

constexpr int32_t kMilli = 1000;  // settings are microseconds of a step

const TuneRun kOnline{.metrics_ms = {10}, .offline_tokens_per_s = 0};

TuneOptions p99_within(double tolerance) {
  TuneOptions options;
  options.least = kMilli;
  options.most = 2000 * kMilli;
  options.show = [](int32_t setting) { return std::to_string(setting); };
  options.goals = {{.metric = TuneMetric::kP99Tbt, .tolerance = tolerance}};
  return options;
}

// The metric is the budget, but at least what it is without best effort.
Result<std::optional<TuneRun>> as_long_as_the_budget(int32_t budget) {
  const double millis = budget / 1e3;
  return std::optional(
      TuneRun{.metrics_ms = {std::max(10.0, millis)}, .offline_tokens_per_s = millis});
}

TEST(Tune, FindsTheLargestBudgetWithinTheTolerance) {
  const Tuned tuned = tune_setting(p99_within(0.5), kOnline, as_long_as_the_budget).value();
  EXPECT_EQ(tuned.allowed_ms, std::vector<double>{15});
  EXPECT_LE(tuned.best.setting, 15 * kMilli);
  EXPECT_GE(tuned.best.setting, 14'850);
  EXPECT_LE(tuned.tried.size(), 12U);
}

TEST(Tune, ABudgetThatIsTooSmallToServeByIsNotTheAnswer) {
  const auto run = [](int32_t budget) -> Result<std::optional<TuneRun>> {
    return budget < 9 * kMilli ? std::optional<TuneRun>() : as_long_as_the_budget(budget).value();
  };
  EXPECT_GE(tune_setting(p99_within(0.1), kOnline, run).value().best.setting, 10 * kMilli);
}

TEST(Tune, WhereEveryBudgetKeepsItTheLargestIsTaken) {
  const auto run = [](int32_t) -> Result<std::optional<TuneRun>> { return std::optional(kOnline); };
  const Tuned tuned = tune_setting(p99_within(0.05), kOnline, run).value();
  EXPECT_EQ(tuned.best.setting, 2000 * kMilli);
}

TEST(Tune, WhereNoBudgetKeepsItTheErrorSaysWhatTheLeastCameTo) {
  const auto run = [](int32_t) -> Result<std::optional<TuneRun>> {
    return std::optional(TuneRun{.metrics_ms = {11}, .offline_tokens_per_s = 5});
  };
  const auto tuned = tune_setting(p99_within(0.05), kOnline, run);
  ASSERT_FALSE(tuned.ok());
  EXPECT_NE(tuned.error().message.find("p99_tbt of 11.00 ms (allowed: 10.50)"), std::string::npos)
      << tuned.error().message;
}

TEST(Tune, SeveralGoalsAreAllKept) {
  TuneOptions options = p99_within(1);
  options.goals.push_back({.metric = TuneMetric::kMeanTtft, .tolerance = 0.2});
  const auto run = [](int32_t budget) -> Result<std::optional<TuneRun>> {
    const double millis = budget / 1e3;
    return std::optional(TuneRun{.metrics_ms = {millis, 100 + millis}, .offline_tokens_per_s = 1});
  };
  const TuneRun online{.metrics_ms = {10, 100}, .offline_tokens_per_s = 0};
  const Tuned tuned = tune_setting(options, online, run).value();
  EXPECT_LE(tuned.best.setting, 20 * kMilli);
  EXPECT_GE(tuned.best.setting, 19'800);
}

TEST(Tune, ABudgetBelowWhichPromptsWaitIsNotTakenForOneThatIsTooLarge) {
  const auto run = [](int32_t budget) -> Result<std::optional<TuneRun>> {
    const double millis = budget / 1e3;
    return std::optional(
        TuneRun{.metrics_ms = {millis < 20 ? 10'000 : 30 + millis}, .offline_tokens_per_s = 1});
  };
  const TuneRun online{.metrics_ms = {50}, .offline_tokens_per_s = 0};
  const Tuned tuned = tune_setting(p99_within(0.1), online, run).value();
  EXPECT_LE(tuned.best.setting, 25 * kMilli);
  EXPECT_GE(tuned.best.setting, 24 * kMilli);
}

TEST(Tune, ABudgetUnderWhichRequestsAreLostIsNotKept) {
  const auto run = [](int32_t budget) -> Result<std::optional<TuneRun>> {
    TuneRun came = *as_long_as_the_budget(budget).value();
    came.online_lost = budget < 20 * kMilli ? 5 : 0;
    came.metrics_ms = {budget < 20 * kMilli ? 10.0 : came.metrics_ms.front()};
    return std::optional(came);
  };
  EXPECT_GE(tune_setting(p99_within(1.5), kOnline, run).value().best.setting, 24 * kMilli);
  EXPECT_FALSE(tune_setting(p99_within(0.5), kOnline, run).ok());
}

loadgen::Load two_groups() {
  loadgen::Load load;
  load.groups.resize(2);
  load.groups[0].service_tier = "priority";
  load.groups[1].service_tier = "flex";
  load.requests.resize(3);
  load.requests[1].group = 1;
  return load;
}

loadgen::RequestRecord record(int32_t group, std::vector<Nanos> chunks) {
  loadgen::RequestRecord made;
  made.group = group;
  made.chunk_times = std::move(chunks);
  made.outcome = loadgen::Outcome::kDone;
  return made;
}

TEST(Tune, OnlyLatencySensitiveRequestsAreMeasured) {
  const loadgen::Load load = two_groups();
  EXPECT_EQ(online_part(load).requests.size(), 2U);
  const std::vector<TuneGoal> goals = {{.metric = TuneMetric::kMeanTbt, .tolerance = 0.1},
                                       {.metric = TuneMetric::kMeanTtft, .tolerance = 0.1}};
  const std::vector<loadgen::RequestRecord> records = {
      record(0, {milliseconds(10), milliseconds(14), milliseconds(20)}),
      record(1, {milliseconds(500), milliseconds(900)}),
      record(0, {milliseconds(30)}),
  };
  const TuneRun run = measure_run(load, records, std::chrono::seconds(2), goals).value();
  EXPECT_EQ(run.metrics_ms, (std::vector<double>{5, 20}));
  EXPECT_EQ(run.offline_tokens_per_s, 1);
  EXPECT_EQ(run.online_lost, 0);
}

TEST(Tune, MetricsWithoutSamplesAreAnError) {
  const loadgen::Load load = two_groups();
  const std::vector<TuneGoal> goals = {{.metric = TuneMetric::kP99Tbt, .tolerance = 0.1}};
  const auto run =
      measure_run(load, {record(0, {milliseconds(10)})}, std::chrono::seconds(1), goals);
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().param, "metric");
}

TEST(Tune, MetricsHaveNames) {
  for (const std::string_view name : {"mean_tbt", "p99_tbt", "mean_ttft", "p99_ttft"}) {
    EXPECT_EQ(tune_metric_name(parse_tune_metric(name).value()), name);
  }
  EXPECT_FALSE(parse_tune_metric("p99").ok());
}

}  // namespace
}  // namespace tandem::sim
