#include "observe/metrics_json.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "observe/engine_metrics.h"

namespace tandem::observe {
namespace {

using nlohmann::json;

prometheus::MetricFamily gauge(const std::string& name, double value) {
  prometheus::ClientMetric metric;
  metric.label = {{"model_name", "m"}};
  metric.gauge.value = value;
  return {name, "help", prometheus::MetricType::Gauge, {metric}};
}

TEST(MetricsJson, SeriesWithoutLabelsAreNumbersAndHistogramsHaveCountAndSum) {
  EngineMetrics metrics({.model_name = "a \"name\"\xff"});
  metrics.on_gauges({.running = 3, .waiting = 2, .waiting_by_class = {0, 2}, .total_blocks = 8});
  metrics.on_step({.duration = std::chrono::milliseconds(20)});
  metrics.on_request({.slo = SloOutcome::kMet, .finish_reason = "stop"});
  const json read = json::parse(metrics.json());
  EXPECT_EQ(read["requests_running"], 3);
  EXPECT_EQ(read["kv_blocks"], 8);
  EXPECT_EQ(read["step_seconds"], json({{"count", 1}, {"sum", 0.02}}));
  const json batch = {{"class", "best_effort"}, {"value", 2}};
  EXPECT_EQ(read["requests_waiting_by_class"][0]["class"], "best_effort") << "sorted by label";
  EXPECT_EQ(read["requests_waiting_by_class"][0], batch);
  int met = 0;
  for (const json& series : read["slo_requests_total"]) {
    met += series["class"] == "latency_sensitive" && series["outcome"] == "met" ? 1 : 0;
  }
  EXPECT_EQ(met, 1);
  EXPECT_FALSE(read.contains("num_requests_running")) << "vLLM's names are left out";
}

TEST(MetricsJson, AForecastIsThatOfTheLastDecision) {
  EngineMetrics metrics({.model_name = "m", .admission = Admits::kYes});
  metrics.on_admission({.answer = "accepted", .forecast = std::chrono::milliseconds(250)});
  metrics.on_admission({.answer = "queued"});  // nothing was forecast
  EXPECT_EQ(json::parse(metrics.json())["last_ttft_forecast_seconds"], 0.25);
}

TEST(MetricsJson, NumbersThatAreNotFiniteAreNullAndEmptyFamiliesLeftOut) {
  const json read =
      json::parse(metrics_json({gauge("tandem_a", std::numeric_limits<double>::infinity()),
                                gauge("other", 1),
                                {"tandem_b", "help", prometheus::MetricType::Gauge, {}}}));
  EXPECT_EQ(read, json({{"a", nullptr}}));
}

}  // namespace
}  // namespace tandem::observe
