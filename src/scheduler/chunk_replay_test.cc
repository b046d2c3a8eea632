#include "scheduler/chunk_replay.h"

#include <gtest/gtest.h>

#include "latency/modular_model.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

// 2 ms a step, 0.1 ms a row.
const latency::ModularModel& replay_model() {
  static const latency::ModularModel times = latency::simple_model(
      {.layers = 1, .fixed = milliseconds(2), .per_row = std::chrono::microseconds(100)});
  return times;
}

TEST(ChunkReplay, CutsPromptsByTheLimitAndCountsTheirSteps) {
  // 80 rows a step beside nothing.
  const std::vector<PromptAhead> prompts{{.rest = {.pending_tokens = 200}},
                                         {.rest = {.pending_tokens = 20}}};
  const std::vector<Nanos> done = replay_prompts(
      replay_model(), {.decodes = {}, .limit = milliseconds(10), .step_tokens = 512}, prompts);
  // 80 + 80 + (40 of the first, 20 of the second).
  EXPECT_EQ(done[0], milliseconds(28));
  EXPECT_EQ(done[1], milliseconds(28));
}

TEST(ChunkReplay, FinishedPromptsDecodeBesideTheNext) {
  const std::vector<PromptAhead> prompts{{.rest = {.pending_tokens = 80, .choices = 4}},
                                         {.rest = {.pending_tokens = 80}}};
  const std::vector<Nanos> done = replay_prompts(
      replay_model(), {.decodes = {}, .limit = milliseconds(10), .step_tokens = 512}, prompts);
  EXPECT_EQ(done[0], milliseconds(10));
  EXPECT_EQ(done[1], milliseconds(10) + milliseconds(10) + std::chrono::microseconds(2800));
}

// Steps of 80 rows; the third and the fifth have 64 and last 3 ms longer.
TEST(ChunkReplay, BestEffortThatIsNotHereYetClaimsItsPartAfterItsPatience) {
  const std::vector<PromptAhead> prompts{{.rest = {.pending_tokens = 160}},
                                         {.rest = {.pending_tokens = 240}}};
  const std::vector<Nanos> done = replay_prompts(replay_model(),
                                                 {.decodes = {},
                                                  .step_tokens = 80,
                                                  .later_rows = 16,
                                                  .later = milliseconds(3),
                                                  .patience_steps = 2},
                                                 prompts);
  // Each step has the decode of the first prompt from the third on.
  EXPECT_EQ(done[0], milliseconds(20));
  EXPECT_EQ(done[1] - done[0], std::chrono::microseconds(38400));
}

TEST(ChunkReplay, ThePartOfBestEffortCountsThatIsHereAndThatMayCome) {
  const latency::StepShape idle;
  const ForcedShare none = forced_share(replay_model(), idle, {}, 4);
  EXPECT_EQ(none.at_once, Nanos{0});
  EXPECT_EQ(none.apart, Nanos{0});
  EXPECT_EQ(none.rows, 0);
  EXPECT_EQ(none.later_rows, kTileTokens);
  EXPECT_EQ(none.later, std::chrono::microseconds(4500));  // a tile and a quarter of its step
  const ForcedShare one =
      forced_share(replay_model(), idle, {.prompts = 1, .prompt_tokens = 10}, 4);
  EXPECT_EQ(one.at_once, std::chrono::microseconds(3600));
  EXPECT_EQ(one.apart, none.later / 4);
  EXPECT_EQ(one.rows, kTileTokens);
  EXPECT_EQ(one.later_rows, 0);
}

TEST(ChunkReplay, ATileGoesInEvenWhereNothingFits) {
  const std::vector<PromptAhead> prompts{{.rest = {.pending_tokens = 2 * kTileTokens}}};
  const std::vector<Nanos> done = replay_prompts(
      replay_model(), {.decodes = {}, .limit = milliseconds(1), .step_tokens = 512}, prompts);
  EXPECT_EQ(done[0], 2 * std::chrono::microseconds(3600));
}

TEST(ChunkReplay, StepsOfDaysDoNotPassTheEndOfTime) {
  const latency::ModularModel slow = latency::simple_model(
      {.layers = 1, .fixed = std::chrono::hours(24 * 11), .per_row = milliseconds(1)});
  PromptReplay replay(slow, {.decodes = {}, .limit = milliseconds(1), .step_tokens = 16});
  for (int i = 0; i < 200; ++i) {
    replay.add({.rest = {.pending_tokens = 100}, .due = milliseconds(1)});
  }
  replay.finish();
  for (int32_t step = 1; step < 1000; ++step) {
    EXPECT_GE(replay.end_of(step), replay.end_of(step - 1));
  }
  EXPECT_GE(replay.late(), Nanos{0});
}

TEST(ChunkReplay, WhatLiesTooFarAheadHasNoTime) {
  const std::vector<PromptAhead> prompts{
      {.rest = {.pending_tokens = (kReplaySteps + 1) * kTileTokens}}};
  EXPECT_EQ(replay_prompts(replay_model(), {.decodes = {}, .limit = Nanos{1}, .step_tokens = 16},
                           prompts)[0],
            Nanos::max());
  EXPECT_TRUE(replay_prompts(replay_model(), {}, {}).empty());
}

// 2 ms and 80 rows a step; context makes no difference here.
TEST(ChunkReplay, FarAheadItIsWalkedRoughlyButNotWrongly) {
  const std::vector<PromptAhead> prompts{{.rest = {.pending_tokens = 80 * 10 * kExactSteps}}};
  const Nanos done = replay_prompts(
      replay_model(), {.decodes = {}, .limit = milliseconds(10), .step_tokens = 512}, prompts)[0];
  EXPECT_GE(done, milliseconds(100) * kExactSteps);
  EXPECT_LE(done, milliseconds(103) * kExactSteps);
}

TEST(PromptReplay, GoesOnAsOneThatWasWalkedAtOnce) {
  const ReplayRules rules{
      .decodes = {}, .limit = milliseconds(10), .step_tokens = 512, .before = milliseconds(5)};
  std::vector<PromptAhead> prompts;
  PromptReplay grown(replay_model(), rules);
  for (int32_t i = 0; i < 12; ++i) {
    prompts.push_back({.rest = {.pending_tokens = 30 + 17 * i}, .due = milliseconds(15 * (i + 1))});
    const int32_t step = grown.add(prompts.back());
    PromptReplay copy = grown;
    copy.finish();
    EXPECT_EQ(copy.end_of(step), replay_prompts(replay_model(), rules, prompts).back()) << i;
  }
}

TEST(PromptReplay, TellsHowLateTheyAreAllTogether) {
  PromptReplay replay(replay_model(),
                      {.decodes = {}, .limit = milliseconds(10), .step_tokens = 512});
  replay.add({.rest = {.pending_tokens = 80}, .due = milliseconds(10)});
  replay.add({.rest = {.pending_tokens = 79}, .due = milliseconds(17)});
  replay.finish();
  EXPECT_EQ(replay.late(), milliseconds(3));
  EXPECT_EQ(replay.longest_step(), milliseconds(10));
}

TEST(ForcedTime, IsWhatBestEffortAddsWhateverTheTime) {
  latency::StepShape shape;
  shape.add_decode(10);
  EXPECT_EQ(forced_time(replay_model(), shape, {}), Nanos{0});
  EXPECT_EQ(forced_time(replay_model(), shape, {.decodes = 3, .context = 90, .prompts = 2}),
            std::chrono::microseconds(1900));  // three rows and a tile
}

TEST(PlannedDue, KeepsATenthOfTheTarget) {
  EXPECT_EQ(planned_due(milliseconds(100), milliseconds(200)), milliseconds(190));
  EXPECT_EQ(planned_due(milliseconds(100), Nanos::max()), Nanos::max());
}

}  // namespace
}  // namespace tandem
