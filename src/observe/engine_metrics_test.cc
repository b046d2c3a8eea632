#include "observe/engine_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::observe {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(EngineMetrics, BothNameSetsSayTheSame) {
  EngineMetrics metrics(
      {.model_name = "m", .vllm_names = true, .block_tokens = 32, .total_blocks = 10});
  metrics.on_gauges({.running = 3, .waiting = 2, .blocks_in_use = 5, .total_blocks = 10});
  const std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr("tandem_requests_running{model_name=\"m\"} 3"));
  EXPECT_THAT(text, HasSubstr("vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3"));
  EXPECT_THAT(text, HasSubstr("vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.5"));
}

TEST(EngineMetrics, VllmNamesCanBeSwitchedOff) {
  EngineMetrics metrics({.model_name = "m", .vllm_names = false});
  EXPECT_THAT(metrics.render(), Not(HasSubstr("vllm:")));
}

TEST(EngineMetrics, ARequestThatNeverRanHasNoTimes) {
  EngineMetrics metrics({.model_name = "m"});
  metrics.on_request({.finish_reason = "abort", .arrived = 1s, .ended = 2s});
  const std::string text = metrics.render();
  EXPECT_THAT(text,
              HasSubstr("tandem_requests_total{finished_reason=\"abort\",model_name=\"m\"} 1"));
  EXPECT_THAT(text, HasSubstr("tandem_request_queue_time_seconds_count{model_name=\"m\"} 0"));
}

TEST(EngineMetrics, VllmsLabelsAreThoseOfVllm) {
  EngineMetrics metrics({.model_name = "m"});
  metrics.on_gauges({.running = 3, .waiting = 2});
  metrics.on_rejected("queue_full");
  metrics.on_rejected("slo_ttft");
  metrics.on_request({.finish_reason = "stop", .output_tokens = 3, .n = 2});
  metrics.on_request({.finish_reason = "stop", .output_tokens = 2, .max_output_tokens = 3, .n = 2});
  const std::string text = metrics.render();
  const std::string engine = R"({engine="0",model_name="m")";
  for (const std::string& line :
       {"vllm:num_requests_waiting_by_reason" + engine + R"(,reason="capacity"} 2)",
        "vllm:num_requests_waiting_by_reason" + engine + R"(,reason="deferred"} 0)",
        std::string(R"(vllm:admission_rejections_total{model_name="m",reason="draining"} 0)"),
        std::string(
            R"(vllm:admission_rejections_total{model_name="m",reason="max_num_queued_reqs"} 1)"),
        std::string(R"(vllm:admission_rejections_total{model_name="m",reason="slo_ttft"} 1)"),
        std::string(R"(tandem_admission_rejections_total{model_name="m",reason="queue_full"} 1)"),
        "vllm:request_params_n_count" + engine + "} 1",
        "vllm:request_params_n_sum" + engine + "} 2",
        std::string(R"(tandem_request_params_n_count{model_name="m"} 1)"),
        "vllm:request_max_num_generation_tokens_count" + engine + "} 1",
        "vllm:request_max_num_generation_tokens_sum" + engine + "} 3"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(EngineMetrics, StepsAddUp) {
  EngineMetrics metrics({.model_name = "m"});
  metrics.on_step({.step = 1,
                   .prefill_tokens = 7,
                   .sampled_tokens = 1,
                   .prompt_tokens = 7,
                   .first_token_times = {{{20ms}, {}}}});
  metrics.on_step({.step = 2,
                   .decode_tokens = 1,
                   .sampled_tokens = 1,
                   .put_off = 2,
                   .token_gaps = {{{}, {{.gap = 10ms, .tokens = 1}}}}});
  const std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr("tandem_generation_tokens_total{model_name=\"m\"} 2"));
  EXPECT_THAT(text, HasSubstr("tandem_plan_shortfalls_total{model_name=\"m\"} 2"));
  for (const char* line :
       {R"(tandem_time_to_first_token_seconds_count{class="latency_sensitive",model_name="m"} 1)",
        R"(tandem_time_to_first_token_seconds_count{class="best_effort",model_name="m"} 0)",
        R"(tandem_inter_token_latency_seconds_count{class="latency_sensitive",model_name="m"} 0)",
        R"(tandem_inter_token_latency_seconds_count{class="best_effort",model_name="m"} 1)",
        R"(vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 1)"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(EngineMetrics, AttainmentIsCountedByClass) {
  EngineMetrics metrics({.model_name = "m"});
  const auto series = [](const char* name, const char* service_class, const char* label,
                         const char* value, int count) {
    const std::string first = std::string("class=\"") + service_class + "\"";
    const std::string own = std::string(label) + "=\"" + value + "\"";
    const bool before_model = std::string(label) < "model_name";
    return std::string(name) + "{" + first + "," +
           (before_model ? own + ",model_name=\"m\"" : "model_name=\"m\"," + own) + "} " +
           std::to_string(count);
  };
  EXPECT_THAT(metrics.render(),
              HasSubstr(series("tandem_slo_requests_total", "best_effort", "outcome", "met", 0)));
  metrics.on_request({.slo = SloOutcome::kMet, .finish_reason = "stop"});
  metrics.on_request({.slo = SloOutcome::kMissed,
                      .verdict = {.ttft_kept = false, .tpot_kept = false},
                      .finish_reason = "stop"});
  metrics.on_request({.slo = SloOutcome::kAborted, .finish_reason = "abort"});
  metrics.on_request({.finish_reason = "stop"});
  metrics.on_request({.service_class = ServiceClass::kBestEffort,
                      .slo = SloOutcome::kMissed,
                      .verdict = {.tpot_kept = false},
                      .finish_reason = "stop"});
  const std::string text = metrics.render();
  for (const std::string& line :
       {series("tandem_slo_requests_total", "latency_sensitive", "outcome", "met", 1),
        series("tandem_slo_requests_total", "latency_sensitive", "outcome", "missed", 1),
        series("tandem_slo_requests_total", "latency_sensitive", "outcome", "aborted", 1),
        series("tandem_slo_requests_total", "best_effort", "outcome", "missed", 1),
        series("tandem_slo_misses_total", "latency_sensitive", "target", "ttft", 1),
        series("tandem_slo_misses_total", "latency_sensitive", "target", "tpot", 1),
        series("tandem_slo_misses_total", "best_effort", "target", "ttft", 0),
        series("tandem_slo_misses_total", "best_effort", "target", "tpot", 1)}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

}  // namespace
}  // namespace tandem::observe
