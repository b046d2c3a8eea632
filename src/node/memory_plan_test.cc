#include "node/memory_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "exec/forward_executor.h"

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
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument) << "two flags contradict each other";
  EXPECT_EQ(refused.error().param, "num-kv-blocks");
}

TEST(MemoryPlan, BlocksThatDoNotFitAreNamedWithTheNumberThatDoes) {
  MemoryPlanInput input{.memory_bytes = 8 * kGiB};
  input.executor.kv_bytes = 16 * kGiB;
  const auto plan = plan_memory(one_billion(), input);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().param, "num-kv-blocks");
  EXPECT_NE(plan.error().message.find("--num-kv-blocks"), std::string::npos);
  const std::string before = "give at most ";
  const size_t at = plan.error().message.find(before);
  ASSERT_NE(at, std::string::npos) << plan.error().message;
  const int64_t fits = std::stoll(plan.error().message.substr(at + before.size()));
  const kernels::KvLayout layout = kv_layout_for(one_billion(), input.executor);
  input.executor.kv_bytes = fits * layout.block_bytes();
  EXPECT_TRUE(plan_memory(one_billion(), input).ok());
  input.memory_bytes = kGiB;
  EXPECT_EQ(plan_memory(one_billion(), input).error().param, "device-memory") << "no block fits";
}

TEST(MemoryPlan, TooLittleMemoryNamesTheFlags) {
  const auto plan = plan_memory(one_billion(), {.memory_bytes = 1 * kGiB});
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.error().message.find("--device-memory"), std::string::npos);
}

TEST(MemoryPlan, TooLittleMemoryNamesTheFlagsOfTheCommand) {
  MemoryPlanInput input{.memory_bytes = 1 * kGiB,
                        .host_memory_bytes = 1 << 20,
                        .offloaded_sequences = 20,
                        .flags = {.device = "accelerator-memory", .host = "host-kv"}};
  const Error device = plan_memory(one_billion(), input).error();
  EXPECT_NE(device.message.find("Raise --accelerator-memory, which gives 1.00 GiB now"),
            std::string::npos)
      << device.message;
  EXPECT_EQ(device.param, "accelerator-memory");
  input.memory_bytes = 8 * kGiB;
  const Error host = plan_memory(one_billion(), input).error();
  EXPECT_NE(host.message.find("Raise --host-kv"), std::string::npos) << host.message;
  EXPECT_EQ(host.param, "host-kv");
  input.host_memory_bytes = 0;
  input.executor.kv_bytes = 9 * kGiB;
  const Error blocks = plan_memory(one_billion(), input).error();
  EXPECT_NE(blocks.message.find("raise --accelerator-memory"), std::string::npos) << blocks.message;
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

TEST(MemoryPlan, TheBoundOfUsefulHostMemoryHoldsWhatThePlanTakes) {
  for (const int32_t length : {0, 512}) {
    MemoryPlanInput input{.max_model_len = length,
                          .memory_bytes = 8 * kGiB,
                          .host_memory_bytes = 200 * kGiB,
                          .offloaded_sequences = 20};
    const auto plan = plan_memory(one_billion(), input);
    ASSERT_TRUE(plan.ok());
    const int64_t bound = useful_host_bytes(one_billion(), input);
    EXPECT_LE(plan->host.total_bytes, bound);
    EXPECT_EQ(plan->host.kv_bytes + kMaxHostBufferBytes, bound);
    input.host_memory_bytes = bound;
    const auto bounded = plan_memory(one_billion(), input);
    ASSERT_TRUE(bounded.ok());
    EXPECT_EQ(bounded->host.kv_blocks, plan->host.kv_blocks);
  }
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

int64_t row(const std::vector<MemoryPlanRow>& rows, std::string_view what) {
  int64_t bytes = 0;
  for (const MemoryPlanRow& one : rows) {
    bytes += one.what == what ? one.bytes : 0;
  }
  return bytes;
}

TEST(MemoryPlan, AllThatAStepCanNeedHasARow) {
  MemoryPlanInput input{.memory_bytes = 8 * kGiB};
  input.executor.compute_threads = 64;
  const auto one_tier = plan_memory(one_billion(), input);
  ASSERT_TRUE(one_tier.ok());
  // 16 queries for each thread, of 4096 tokens in splits of 256.
  EXPECT_EQ(row(one_tier->rows, "partial attention"), 64 * 16 * 16 * (64 + 16) * 4);
  EXPECT_GT(row(one_tier->rows, "compute threads"), 64 * 64 * 1024);
  EXPECT_GT(row(one_tier->rows, "scored prompt tokens"), 2048 * 20 * 8);
  // The tokens of every block, a table of blocks and the longest lists for each sequence; twice,
  // on both sides.
  EXPECT_GT(row(one_tier->rows, "step inputs"),
            4 * (one_tier->kv_tokens * 4 + 256 * (128 * 4 * 2 + 1024 * 8 + 128 * 4)));
  input.executor.compute_threads = 1;
  const auto alone = plan_memory(one_billion(), input);
  EXPECT_EQ(row(alone->rows, "partial attention"), 0);

  input.host_memory_bytes = 8 * kGiB;
  input.offloaded_sequences = 256;
  input.executor.host.threads = 64;
  const auto two_tiers = plan_memory(one_billion(), input);
  ASSERT_TRUE(two_tiers.ok());
  EXPECT_GT(row(two_tiers->host.rows, "partial attention"), 0);
  EXPECT_GT(row(two_tiers->host.rows, "scored prompt tokens"), 2048 * 20 * 8);
  const int64_t host_tokens = two_tiers->host.kv_blocks * two_tiers->block_tokens;
  for (const auto* rows : {&two_tiers->rows, &two_tiers->host.rows}) {
    EXPECT_GT(row(*rows, "visitors' inputs"), 2 * (host_tokens * 4 + 256 * 1024 * 8));
  }
}

TEST(MemoryPlan, StagingLayersHaveARowWherePromptsGoStraightToTheHost) {
  MemoryPlanInput input{
      .memory_bytes = 8 * kGiB, .host_memory_bytes = 2 * kGiB, .offloaded_sequences = 256};
  const auto without = plan_memory(one_billion(), input);
  ASSERT_TRUE(without.ok());
  EXPECT_EQ(row(without->rows, "staging layers"), 0);
  input.executor.host.staging_tokens = 2048;
  const auto plan = plan_memory(one_billion(), input);
  ASSERT_TRUE(plan.ok());
  // Two layers of the blocks that hold 2,048 tokens.
  const int64_t layer_bytes = plan->host.block_bytes / one_billion().layers;
  EXPECT_EQ(row(plan->rows, "staging layers"), 2 * 2048 / plan->block_tokens * layer_bytes);
  EXPECT_EQ(row(plan->host.rows, "staging layers"), 0);
}

TEST(MemoryPlan, AMachineWithJustWhatAPlanTakesHasTheSamePlan) {
  MemoryPlanInput input{
      .memory_bytes = 8 * kGiB, .host_memory_bytes = 2 * kGiB, .offloaded_sequences = 256};
  input.executor.compute_threads = 4;
  input.executor.host.threads = 4;
  const auto plan = plan_memory(one_billion(), input);
  ASSERT_TRUE(plan.ok());
  input.memory_bytes = plan->total_bytes;
  input.executor.kv_bytes = plan->executor.kv_bytes;
  const auto exact = plan_memory(one_billion(), input);
  ASSERT_TRUE(exact.ok()) << exact.error().message;
  EXPECT_EQ(exact->total_bytes, plan->total_bytes);
  EXPECT_EQ(exact->kv_blocks, plan->kv_blocks);
  EXPECT_EQ(exact->host.kv_blocks, plan->host.kv_blocks);
  // The least block that is left over is of no use to anybody.
  EXPECT_LT(plan->host.memory_bytes - plan->host.total_bytes, 2 * plan->host.block_bytes);
}

TEST(MemoryPlan, MorePositionsThanTheModelKnowsAreRefused) {
  const auto plan = plan_memory(one_billion(), {.max_model_len = 5000, .memory_bytes = 8 * kGiB});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().param, "max-model-len");
}

}  // namespace
}  // namespace tandem
