// Prompts that go straight to the host: their KV takes no blocks of the accelerator, they decode on
// the host from their second token on, and whatever ends them leaves nothing behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "support/two_tier_world.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;
using testing::Dice;
using testing::expect_drained;
using testing::expected_tokens;
using testing::make_request;
using testing::prompt_of;
using testing::two_tiers;
using testing::VirtualWorld;
using testing::WorldOptions;

// All prompts that can go straight to the host do, and nothing else moves.
WorldOptions straight(uint64_t seed = 1) {
  Dice dice;
  dice.seed = seed;
  dice.straight = 100;
  dice.offload = dice.onload = dice.drop = dice.preempt = 0;
  WorldOptions options = two_tiers(dice);
  options.executor.limits.staging_blocks = 16;
  return options;
}

TEST(EngineStraight, APromptIsOnTheHostWhenItsStepHasEnded) {
  VirtualWorld world(straight());
  const Request request = make_request(prompt_of(30), 40);
  world.arrive(0ms, 1, request);
  world.run_until_idle();
  EXPECT_EQ(world.outcome(1).tokens, expected_tokens(request, 0));
  EXPECT_EQ(world.straight(), 1);
  EXPECT_EQ(world.executor().host().transfers(), 0);
  EXPECT_EQ(world.executor().host().entered(), 39);
  expect_drained(world);
}

TEST(EngineStraight, PromptsShareAStepAsFarAsTheStagingLayersHoldThem) {
  VirtualWorld world(straight());
  for (int64_t id = 1; id <= 5; ++id) {  // 5 blocks each
    world.arrive(0ms, id, make_request(prompt_of(18, static_cast<TokenId>(100 * id)), 8));
  }
  world.run_until_idle();
  for (int64_t id = 1; id <= 5; ++id) {
    const Request request = make_request(prompt_of(18, static_cast<TokenId>(100 * id)), 8);
    EXPECT_EQ(world.outcome(id).tokens, expected_tokens(request, 0)) << id;
  }
  EXPECT_EQ(world.straight(), 4) << "64 rows hold three, the fourth is cut, the fifth is alone";
  expect_drained(world);
}

TEST(EngineStraight, APromptOfOneTokenEndsWithItsStep) {
  VirtualWorld world(straight());
  const Request request = make_request(prompt_of(30), 1);
  world.arrive(0ms, 1, request);
  world.run_until_idle();
  EXPECT_EQ(world.outcome(1).tokens, expected_tokens(request, 0));
  EXPECT_EQ(world.outcome(1).reason, FinishReason::kLength);
  EXPECT_EQ(world.executor().host().entered(), 0);
  expect_drained(world);
}

TEST(EngineStraight, TheNextPromptFindsItsPrefixOnTheHost) {
  VirtualWorld world(straight());
  const Request request = make_request(prompt_of(30), 4);
  world.arrive(0ms, 1, request);
  world.arrive(200ms, 2, request);
  world.run_until_idle();
  EXPECT_EQ(world.outcome(2).tokens, expected_tokens(request, 0));
  EXPECT_EQ(world.outcome(2).cached_tokens, 28);
  EXPECT_EQ(world.straight(), 1);
  expect_drained(world);
}

TEST(EngineStraight, ChoicesStayOnTheAccelerator) {
  VirtualWorld world(straight());
  Request request = make_request(prompt_of(30), 6);
  request.n = 2;
  world.arrive(0ms, 1, request);
  world.run_until_idle();
  EXPECT_EQ(world.outcome(1, 0).tokens, expected_tokens(request, 0));
  EXPECT_EQ(world.outcome(1, 1).tokens, expected_tokens(request, 1));
  EXPECT_EQ(world.straight(), 0);
  expect_drained(world);
}

// A step with prompts for the host takes a millisecond or two; the cancel comes before it, in it,
// or at any stage of the tokens after it.
TEST(EngineStraight, CancelAndStopAtAnyTimeLeaveNothingBehind) {
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE(seed);
    VirtualWorld world(straight(seed));
    const Request request = make_request(prompt_of(40), 20, seed);
    const Request other = make_request(prompt_of(20, 300), 12, 5);
    world.arrive(0ms, 1, request);
    world.arrive(0ms, 2, other);
    const Nanos at = std::chrono::microseconds(seed * 50);
    if (seed % 2 == 0) {
      world.cancel(at, 1);
    } else {
      world.stop(at, 1, 0);
    }
    world.run_until_idle();
    EXPECT_EQ(world.outcome(1).finishes, 1);
    EXPECT_EQ(world.outcome(2).tokens, expected_tokens(other, 0));
    expect_drained(world);
  }
}

// Sends every whole prompt that begins straight to the host, whether there is room or not.
class BoldPolicy final : public StepPolicy {
 public:
  explicit BoldPolicy(StepPolicy& policy) : policy_(policy) {}
  [[nodiscard]] std::string_view name() const override { return policy_.name(); }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override {
    return policy_.make_queue_order();
  }
  StepPlan plan(const SystemView& view) override {
    StepPlan plan = policy_.plan(view);
    plan.straight_to_host = plan.admit;
    return plan;
  }

 private:
  StepPolicy& policy_;
};

TEST(EngineStraight, WhatFindsNoHostBlocksOrStagingBlocksWaitsForALaterStepOnTheAccelerator) {
  for (const auto& [host_blocks, staging_blocks] : {std::pair(9, 16), std::pair(64, 5)}) {
    Dice dice;
    dice.offload = dice.onload = dice.drop = dice.preempt = 0;
    WorldOptions options = two_tiers(dice, 32, host_blocks);
    options.executor.limits.staging_blocks = staging_blocks;
    options.watch_policy = [](StepPolicy& policy) { return std::make_unique<BoldPolicy>(policy); };
    VirtualWorld world(options);
    for (int64_t id = 1; id <= 6; ++id) {
      world.arrive(0ms, id, make_request(prompt_of(18, static_cast<TokenId>(100 * id)), 8));
    }
    world.run_until_idle();
    for (int64_t id = 1; id <= 6; ++id) {
      const Request request = make_request(prompt_of(18, static_cast<TokenId>(100 * id)), 8);
      EXPECT_EQ(world.outcome(id).tokens, expected_tokens(request, 0)) << id;
    }
    EXPECT_GT(world.straight(), 0);
    EXPECT_GT(world.put_off(), 0);
    expect_drained(world);
  }
}

}  // namespace
}  // namespace tandem
