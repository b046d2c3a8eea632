#include "node/memory_plan.h"

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

TEST(MemoryPlan, MorePositionsThanTheModelKnowsAreRefused) {
  const auto plan = plan_memory(one_billion(), {.max_model_len = 5000, .memory_bytes = 8 * kGiB});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().param, "max-model-len");
}

}  // namespace
}  // namespace tandem
