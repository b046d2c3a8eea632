#include "scheduler/plan_builder.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

SequenceView queued(int64_t id, int32_t tokens) {
  return {.id = SequenceId{id}, .state = SequenceState::kQueued, .known_tokens = tokens};
}

SystemView view_with(StepBudget budget) {
  SystemView view;
  view.budget = budget;
  return view;
}

TEST(PlanBuilder, RefusesWhatDoesNotFitAndChangesNothing) {
  const SystemView view = view_with(
      {.tokens = 64, .logit_rows = 1, .sequences = 2, .free_blocks = 4, .block_tokens = 16});
  PlanBuilder builder(view);
  EXPECT_EQ(builder.admit(queued(1, 100), 65), Fit::kNoTokens);
  EXPECT_EQ(builder.admit(queued(2, 40), 40), Fit::kFits);
  EXPECT_EQ(builder.admit(queued(3, 10), 10), Fit::kNoLogitRows);
  EXPECT_EQ(builder.admit(queued(4, 30), 20), Fit::kNoBlocks);  // it would need 2 blocks, 1 is left
  EXPECT_EQ(builder.tokens_left(), 24);
  const StepPlan plan = builder.finish();
  ASSERT_EQ(plan.slices.size(), 1U);
  EXPECT_EQ(plan.slices[0].sequence, SequenceId{2});
}

TEST(PlanBuilder, ALonePromptMayBeginWhereItsWholeWouldNotFitYet) {
  const SystemView view = view_with(
      {.tokens = 32, .logit_rows = 1, .sequences = 1, .free_blocks = 4, .block_tokens = 16});
  PlanBuilder builder(view);
  EXPECT_EQ(builder.admit(queued(1, 64), 32), Fit::kFits);
}

// A best-effort prompt as large as the pool does not keep the other class out by what it still
// needs.
TEST(PlanBuilder, WhatBestEffortStillNeedsCountsOnlyForBestEffort) {
  SequenceView large = queued(1, 320);
  large.state = SequenceState::kPrefilling;
  large.service_class = ServiceClass::kBestEffort;
  large.computed_tokens = 32;
  large.held_blocks = 2;
  SystemView view = view_with(
      {.tokens = 64, .logit_rows = 4, .sequences = 4, .free_blocks = 10, .block_tokens = 16});
  view.running = {&large, 1};
  PlanBuilder builder(view);
  EXPECT_EQ(builder.admit(queued(2, 30), 30), Fit::kNoBlocks);
  EXPECT_EQ(builder.admit_before_best_effort(queued(2, 30), 30), Fit::kFits);
  EXPECT_EQ(builder.admit_before_best_effort(queued(3, 200), 30), Fit::kNoBlocks);
}

TEST(PlanBuilder, CachedBlocksAreNotPaidTwice) {
  const SystemView view = view_with(
      {.tokens = 64, .logit_rows = 4, .sequences = 4, .free_blocks = 3, .block_tokens = 16});
  PlanBuilder builder(view);
  SequenceView cached = queued(1, 60);
  cached.computed_tokens = 48;  // three blocks are in the cache, in use by others
  EXPECT_EQ(builder.admit(cached, 12), Fit::kFits);
  SequenceView evictable = queued(2, 33);
  evictable.computed_tokens = 32;
  evictable.cached_free_blocks = 2;  // two cached blocks that count as free until it takes them
  EXPECT_EQ(builder.admit(evictable, 1), Fit::kNoBlocks);
}

TEST(PlanBuilder, SeveralChoicesNeedTheirLogitRowsAndTheirPlaces) {
  const SystemView view = view_with(
      {.tokens = 64, .logit_rows = 3, .sequences = 8, .free_blocks = 9, .block_tokens = 16});
  PlanBuilder builder(view);
  SequenceView four = queued(1, 10);
  four.choices = 4;
  EXPECT_EQ(builder.admit(four, 10), Fit::kNoLogitRows);
  EXPECT_EQ(builder.admit(four, 9), Fit::kFits);
}

SequenceView decode(int64_t id, int32_t known, int32_t held) {
  return {.id = SequenceId{id},
          .state = SequenceState::kDecoding,
          .known_tokens = known,
          .computed_tokens = known - 1,
          .held_blocks = held,
          .own_blocks = held,
          .transfer_blocks = held};
}

TEST(PlanBuilder, WhatIsOffloadedTakesHostBlocksAndFreesNoneHereYet) {
  const SystemView view = view_with({.tokens = 64,
                                     .logit_rows = 4,
                                     .sequences = 4,
                                     .free_blocks = 1,
                                     .total_blocks = 8,
                                     .host_free_blocks = 5,
                                     .host_total_blocks = 5,
                                     .block_tokens = 16});
  PlanBuilder builder(view);
  EXPECT_EQ(builder.offload(decode(1, 40, 3)), Fit::kFits);
  EXPECT_EQ(builder.offload(decode(2, 40, 3)), Fit::kNoHostBlocks);
  EXPECT_EQ(builder.blocks_left(), 1);
  EXPECT_EQ(builder.host_blocks_left(), 2);
  EXPECT_EQ(builder.finish().offload, std::vector<SequenceId>{SequenceId{1}});
}

TEST(PlanBuilder, WhatComesBackNeedsABlockForItsNextTokenAndAPlace) {
  const SystemView view = view_with({.tokens = 64,
                                     .logit_rows = 4,
                                     .sequences = 1,
                                     .free_blocks = 4,
                                     .total_blocks = 8,
                                     .host_total_blocks = 5,
                                     .block_tokens = 16});
  PlanBuilder builder(view);
  SequenceView parked = decode(1, 65, 4);  // its next token begins a fifth block
  parked.tier = Tier::kHost;
  EXPECT_EQ(builder.onload(parked), Fit::kNoBlocks);
  parked = decode(2, 60, 4);
  parked.tier = Tier::kHost;
  EXPECT_EQ(builder.onload(parked), Fit::kFits);
  EXPECT_EQ(builder.blocks_left(), 0);
  EXPECT_EQ(builder.onload(parked), Fit::kNoSequences);
}

}  // namespace
}  // namespace tandem
