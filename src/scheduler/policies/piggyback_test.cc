#include "scheduler/policies/piggyback.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tandem {
namespace {

using Ids = std::vector<SequenceId>;

Ids ids(std::initializer_list<int64_t> numbers) {
  Ids out;
  for (const int64_t number : numbers) {
    out.push_back(SequenceId{number});
  }
  return out;
}

// Its next token begins a new block.
SequenceView decode(int64_t id, ServiceClass service_class, int32_t blocks) {
  return {.id = SequenceId{id},
          .state = SequenceState::kDecoding,
          .service_class = service_class,
          .known_tokens = blocks * 16 + 1,
          .computed_tokens = blocks * 16,
          .held_blocks = blocks,
          .own_blocks = blocks,
          .transfer_blocks = blocks};
}

SequenceView parked(int64_t id, ServiceClass service_class, int32_t blocks) {
  SequenceView view = decode(id, service_class, blocks);
  view.state = SequenceState::kParkedWaiting;
  view.tier = Tier::kHost;
  return view;
}

SequenceView prompt(int64_t id, ServiceClass service_class, int32_t tokens) {
  return {.id = SequenceId{id}, .service_class = service_class, .known_tokens = tokens};
}

struct Stage {
  std::vector<SequenceView> running{};
  std::vector<SequenceView> offloaded{};
  std::vector<SequenceView> waiting{};
  int64_t free_blocks = 100;
  int64_t host_free_blocks = 100;
  int32_t tokens = 64;
};

StepPlan plan_of(const Stage& stage, const PiggybackOptions& options = {}) {
  SystemView view;
  view.running = stage.running;
  view.offloaded = stage.offloaded;
  view.waiting = stage.waiting;
  view.budget = {.tokens = stage.tokens,
                 .logit_rows = 16,
                 .sequences = 16,
                 .free_blocks = stage.free_blocks,
                 .total_blocks = 100,
                 .host_free_blocks = stage.host_free_blocks,
                 .host_total_blocks = 100,
                 .block_tokens = 16};
  return PiggybackPolicy(options).plan(view);
}

int32_t tokens_of(const StepPlan& plan, int64_t id) {
  for (const StepPlan::Slice& slice : plan.slices) {
    if (slice.sequence == SequenceId{id}) {
      return slice.tokens;
    }
  }
  return 0;
}

TEST(Piggyback, WhereBlocksAreShortBestEffortIsOffloadedAndTheOtherWaitsForThem) {
  const StepPlan plan = plan_of(
      {.running = {decode(1, kLs, 2), decode(2, kBe, 3), decode(3, kBe, 3)}, .free_blocks = 0},
      {.offload_below = 0});
  EXPECT_EQ(plan.offload, ids({3}));
  EXPECT_TRUE(plan.preempt.empty());
  EXPECT_TRUE(plan.slices.empty());
}

TEST(Piggyback, WhileBlocksAreComingNobodyElseIsSentAway) {
  SequenceView going = decode(3, kBe, 3);
  going.state = SequenceState::kOffloading;
  const StepPlan plan = plan_of({.running = {decode(1, kLs, 2), decode(2, kBe, 3)},
                                 .offloaded = {going},
                                 .waiting = {prompt(4, kLs, 5)},
                                 .free_blocks = 0},
                                {.offload_below = 0});
  EXPECT_TRUE(plan.offload.empty());
  EXPECT_TRUE(plan.preempt.empty());
  EXPECT_TRUE(plan.admit.empty());
}

TEST(Piggyback, WhereTheHostIsFullTheNewestBestEffortOneIsRecomputedAndNobodyWaits) {
  const StepPlan plan =
      plan_of({.running = {decode(1, kLs, 2), decode(2, kBe, 3), decode(3, kBe, 3)},
               .free_blocks = 0,
               .host_free_blocks = 2},
              {.offload_below = 0});
  EXPECT_EQ(plan.preempt, ids({3}));
  EXPECT_TRUE(plan.offload.empty());
  EXPECT_EQ(tokens_of(plan, 1), 1);
  EXPECT_EQ(tokens_of(plan, 2), 1);
}

TEST(Piggyback, FewFreeBlocksSendTheNewestBestEffortDecodesToTheHost) {
  const Stage stage{.running = {decode(1, kBe, 8), decode(2, kLs, 8), decode(3, kBe, 8)},
                    .free_blocks = 20};
  const StepPlan plan = plan_of(stage, {.offload_below = 25, .onload_above = 50});
  EXPECT_EQ(plan.offload, ids({3}));
  EXPECT_EQ(tokens_of(plan, 1), 1);
  EXPECT_EQ(tokens_of(plan, 2), 1);
}

TEST(Piggyback, WithOffloadBelowAllOfThemEveryBestEffortDecodeGoesWhenItsPromptIsDone) {
  SequenceView prefilling = decode(2, kBe, 1);
  prefilling.known_tokens = 60;
  prefilling.state = SequenceState::kPrefilling;
  const StepPlan plan =
      plan_of({.running = {decode(1, kBe, 2), prefilling, decode(3, kLs, 2)}, .free_blocks = 90},
              {.offload_below = 100, .onload_above = 100});
  EXPECT_EQ(plan.offload, ids({1}));
  EXPECT_EQ(tokens_of(plan, 2), 44);
  EXPECT_EQ(tokens_of(plan, 3), 1);
}

TEST(Piggyback, ManyFreeBlocksBringTheOldestParkedOneBack) {
  SequenceView under_way = parked(1, kBe, 5);
  under_way.state = SequenceState::kParkedInFlight;
  const Stage stage{.offloaded = {under_way, parked(2, kBe, 9), parked(3, kBe, 9)},
                    .free_blocks = 62};
  const StepPlan plan = plan_of(stage, {.offload_below = 25, .onload_above = 50});
  EXPECT_EQ(plan.onload, ids({2}));  // the third would leave fewer than half free
}

TEST(Piggyback, BetweenTheTwoThresholdsNothingMoves) {
  for (const int64_t free : {30, 40, 55}) {
    const StepPlan plan = plan_of(
        {.running = {decode(1, kBe, 8)}, .offloaded = {parked(2, kBe, 8)}, .free_blocks = free},
        {.offload_below = 25, .onload_above = 50});
    EXPECT_TRUE(plan.offload.empty()) << free;
    EXPECT_TRUE(plan.onload.empty()) << free;
    EXPECT_EQ(tokens_of(plan, 1), 1) << free;
  }
}

TEST(Piggyback, LatencySensitiveOnesGoToTheHostOnlyWhereNothingElseHelpsNewestFirst) {
  const StepPlan plan =
      plan_of({.running = {decode(1, kLs, 4), decode(2, kLs, 4), decode(3, kLs, 4)},
               .waiting = {prompt(4, kLs, 5)},
               .free_blocks = 1});
  EXPECT_EQ(tokens_of(plan, 1), 1);
  EXPECT_EQ(plan.offload, ids({3}));
  EXPECT_TRUE(plan.preempt.empty());
  EXPECT_TRUE(plan.admit.empty());
}

TEST(Piggyback, ALatencySensitiveOneOnTheHostComesBackBeforeAnythingNewBegins) {
  const Stage stage{.offloaded = {parked(1, kBe, 4), parked(2, kLs, 4)},
                    .waiting = {prompt(3, kBe, 5)},
                    .free_blocks = 5};
  const StepPlan plan = plan_of(stage);
  EXPECT_EQ(plan.onload, ids({2}));
  EXPECT_TRUE(plan.admit.empty());
}

TEST(Piggyback, BlocksAreKeptForALatencySensitiveOneThatIsBetweenNoTokensYet) {
  SequenceView under_way = parked(1, kLs, 20);
  under_way.state = SequenceState::kParkedInFlight;
  const Stage stage{.running = {decode(2, kBe, 4)},
                    .offloaded = {under_way},
                    .waiting = {prompt(3, kBe, 100)},
                    .free_blocks = 30};
  const StepPlan plan = plan_of(stage, {.offload_below = 5});
  EXPECT_TRUE(plan.onload.empty());
  EXPECT_TRUE(plan.admit.empty());
}

TEST(Piggyback, WhomTheHostFailedStaysOnTheAccelerator) {
  SequenceView failed = decode(1, kBe, 4);
  failed.host_failures = 1;
  const StepPlan plan = plan_of({.running = {failed}, .free_blocks = 50},
                                {.offload_below = 100, .onload_above = 100});
  EXPECT_TRUE(plan.offload.empty());
  EXPECT_EQ(tokens_of(plan, 1), 1);
}

TEST(Piggyback, LatencySensitivePromptsComeFirstAndBestEffortOnesLeaveAMargin) {
  const Stage stage{.running = {decode(9, kLs, 4)},
                    .waiting = {prompt(1, kLs, 32), prompt(2, kBe, 16), prompt(3, kBe, 16 * 80)},
                    .free_blocks = 60,
                    .tokens = 512};
  const StepPlan plan = plan_of(stage);
  EXPECT_EQ(plan.admit, ids({1, 2}));
  Stage alone = stage;
  alone.running.clear();
  alone.waiting = {prompt(3, kBe, 16 * 80)};
  alone.free_blocks = 100;
  EXPECT_EQ(plan_of(alone).admit, ids({3}));
}

TEST(Piggyback, BestEffortPromptsBeginBesideOtherWorkThoughTheyWillBeOffloaded) {
  const Stage stage{.running = {decode(1, kLs, 4), decode(2, kLs, 4)},
                    .waiting = {prompt(3, kBe, 60), prompt(4, kBe, 16 * 80)},
                    .free_blocks = 70,
                    .tokens = 2000};
  const PiggybackOptions always{.token_budget = 2000, .offload_below = 100, .onload_above = 100};
  EXPECT_EQ(plan_of(stage, always).admit, ids({3}));
}

TEST(Piggyback, AWaitingLatencySensitivePromptSendsBestEffortDecodesAway) {
  const StepPlan plan = plan_of({.running = {decode(1, kBe, 30), decode(2, kBe, 30)},
                                 .waiting = {prompt(3, kLs, 320)},
                                 .free_blocks = 5},
                                {.offload_below = 0});
  EXPECT_EQ(plan.offload, ids({2}));
  EXPECT_TRUE(plan.admit.empty());
  EXPECT_EQ(tokens_of(plan, 1), 1);
}

TEST(Piggyback, PromptsLeaveRowsForVisitors) {
  const Stage stage{.offloaded = {parked(1, kBe, 4), parked(2, kBe, 4)},
                    .waiting = {prompt(3, kLs, 500)}};
  EXPECT_EQ(tokens_of(plan_of(stage, {.onload_above = 100}), 3), 62);
}

TEST(PiggybackDeathTest, ThresholdsThatCrossAreABug) {
  EXPECT_DEATH(PiggybackPolicy({.offload_below = 60, .onload_above = 50}), "offload below 60");
}

}  // namespace
}  // namespace tandem
