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

TEST(EngineMetrics, StepsAddUp) {
  EngineMetrics metrics({.model_name = "m"});
  metrics.on_step({.step = 1,
                   .prefill_tokens = 7,
                   .sampled_tokens = 1,
                   .prompt_tokens = 7,
                   .first_token_times = {20ms}});
  metrics.on_step({.step = 2, .decode_tokens = 1, .sampled_tokens = 1, .token_gaps = {10ms}});
  const std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr("tandem_generation_tokens_total{model_name=\"m\"} 2"));
  EXPECT_THAT(text, HasSubstr("tandem_inter_token_latency_seconds_count{model_name=\"m\"} 1"));
  EXPECT_THAT(text, HasSubstr("tandem_time_to_first_token_seconds_count{model_name=\"m\"} 1"));
}

}  // namespace
}  // namespace tandem::observe
