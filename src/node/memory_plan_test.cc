#include "node/memory_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

model::ModelConfig one_billion() {
  model::ModelConfig config;
  config.layers = 22;
  config.hidden = 2048;
  config.intermediate = 5632;
  config.heads = 32;
  config.kv_heads = 4;
  config.head_dim = 64;
  config.vocabulary = 32000;
  config.max_positions = 4096;
  return config;
}

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(MemoryPlan, TheRowsAddUpAndStayWithinTheMemory) {
  const auto plan = plan_memory(one_billion(), {.memory_bytes = 8 * kGiB});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  int64_t sum = 0;
  for (const MemoryPlanRow& row : plan->rows) {
    sum += row.bytes;
  }
  EXPECT_EQ(sum, plan->total_bytes);
  EXPECT_LE(plan->total_bytes, 8 * kGiB);
  EXPECT_EQ(plan->max_model_len, 4096);
}

TEST(MemoryPlan, KvIsNoLargerThanRunningSequencesCanUse) {
  const auto plan = plan_memory(one_billion(), {.max_running = 2, .memory_bytes = 800 * kGiB});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->kv_tokens, 2 * 4096);
}

TEST(MemoryPlan, ASmallPoolShortensTheContextUnlessItWasAskedFor) {
  const MemoryPlanInput roomy{.memory_bytes = 8 * kGiB};
  MemoryPlanInput tight = roomy;
  tight.executor.kv_bytes = 32 << 20;
  const auto plan = plan_memory(one_billion(), tight);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_LT(plan->max_model_len, 4096);
  EXPECT_EQ(plan->max_model_len, plan->kv_tokens);
  tight.max_model_len = 4096;
  const auto refused = plan_memory(one_billion(), tight);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
}

TEST(MemoryPlan, TooLittleMemoryNamesTheFlags) {
  const auto plan = plan_memory(one_billion(), {.memory_bytes = 1 * kGiB});
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.error().message.find("--device-memory"), std::string::npos);
}

TEST(MemoryPlan, RopeScalingAllowsMorePositionsWhereTheyAreAskedFor) {
  model::ModelConfig config = one_billion();
  config.rope_scaling = model::DynamicRope{.factor = 2.0};
  config.stretched_positions = 8192;
  const auto usual = plan_memory(config, {.memory_bytes = 8 * kGiB});
  ASSERT_TRUE(usual.ok()) << usual.error().message;
  EXPECT_EQ(usual->max_model_len, 4096);
  EXPECT_EQ(usual->executor.served_positions, 4096);
  const auto longer = plan_memory(config, {.max_model_len = 6000, .memory_bytes = 8 * kGiB});
  ASSERT_TRUE(longer.ok()) << longer.error().message;
  EXPECT_EQ(longer->executor.served_positions, 6000);
  EXPECT_FALSE(plan_memory(config, {.max_model_len = 8193, .memory_bytes = 8 * kGiB}).ok());
}

TEST(MemoryPlan, OneTierHasNoHostRowsAndNoAdvice) {
  const auto plan = plan_memory(one_billion(), {.memory_bytes = 8 * kGiB});
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->host.rows.empty());
  EXPECT_EQ(host_advice(*plan), "");
}

TEST(MemoryPlan, TheHostTiersRowsAddUpAndItsQueuesCostTheAccelerator) {
  const MemoryPlanInput one_tier{.memory_bytes = 3 * kGiB};
  MemoryPlanInput input = one_tier;
  input.host_memory_bytes = 3 * kGiB;
  input.offloaded_sequences = 1000;
  const auto without = plan_memory(one_billion(), one_tier);
  const auto plan = plan_memory(one_billion(), input);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_LT(plan->kv_blocks, without->kv_blocks);
  int64_t sum = 0;
  for (const MemoryPlanRow& row : plan->host.rows) {
    sum += row.bytes;
  }
  EXPECT_EQ(plan->host.total_bytes, sum);
  EXPECT_LE(plan->host.total_bytes, 3 * kGiB);
  EXPECT_GT(plan->host.total_bytes, 3 * kGiB - plan->host.block_bytes);
  EXPECT_EQ(plan->executor.host.kv_bytes, plan->host.kv_bytes);
  const int64_t held = plan->host.kv_blocks * plan->block_tokens / 4096;
  const std::string advice = host_advice(*plan);
  EXPECT_NE(advice.find(fmt::format(": {} sequences of 4096 tokens", held)), std::string::npos)
      << advice;
  EXPECT_NE(advice.find(fmt::format("to hold {} more", 1000 - held)), std::string::npos) << advice;
  EXPECT_NE(format_plan(*plan).find("residuals of offloaded"), std::string::npos);
  EXPECT_NE(format_plan(*plan).find("host KV blocks"), std::string::npos);
}

TEST(MemoryPlan, FollowingTheAdviceSilencesIt) {
  MemoryPlanInput input{
      .memory_bytes = 8 * kGiB, .host_memory_bytes = kGiB, .offloaded_sequences = 20};
  const auto plan = plan_memory(one_billion(), input);
  ASSERT_TRUE(plan.ok());
  EXPECT_NE(host_advice(*plan).find("raise --host-memory"), std::string::npos);
  input.host_memory_bytes = 200 * kGiB;
  const auto roomy = plan_memory(one_billion(), input);
  ASSERT_TRUE(roomy.ok());
  EXPECT_EQ(host_advice(*roomy).find("raise"), std::string::npos) << host_advice(*roomy);
  EXPECT_EQ(roomy->host.kv_blocks * roomy->block_tokens, 20 * 4096);  // no more than is of use
}

TEST(MemoryPlan, AHostTierWithoutRoomForABlockOrWithoutPlacesIsRefused) {
  MemoryPlanInput input{
      .memory_bytes = 8 * kGiB, .host_memory_bytes = 1000, .offloaded_sequences = 20};
  const auto tiny = plan_memory(one_billion(), input);
  ASSERT_FALSE(tiny.ok());
  EXPECT_EQ(tiny.error().param, "host-memory");
  input.host_memory_bytes = kGiB;
  input.offloaded_sequences = 0;
  EXPECT_FALSE(plan_memory(one_billion(), input).ok());
}

TEST(MemoryPlan, MorePositionsThanTheModelKnowsAreRefused) {
  const auto plan = plan_memory(one_billion(), {.max_model_len = 5000, .memory_bytes = 8 * kGiB});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().param, "max-model-len");
}

}  // namespace
}  // namespace tandem
