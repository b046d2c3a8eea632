#include "sim/tune_metrics.h"

#include <gtest/gtest.h>

namespace tandem::sim {
namespace {

using std::chrono::milliseconds;

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
