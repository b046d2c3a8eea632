#include "scheduler/chunk_replay.h"

#include <gtest/gtest.h>

#include "latency/modular_model.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

// 2 ms a step, 0.1 ms a row.
const latency::ModularModel& model() {
  static const latency::ModularModel times = latency::simple_model(
      {.layers = 1, .fixed = milliseconds(2), .per_row = std::chrono::microseconds(100)});
  return times;
}

TEST(ChunkReplay, CutsPromptsByTheLimitAndCountsTheirSteps) {
  // 80 rows a step beside nothing.
  const std::vector<PromptAhead> prompts{{.pending_tokens = 200}, {.pending_tokens = 20}};
  const std::vector<Nanos> done = replay_prompts(
      model(), {.decodes = {}, .limit = milliseconds(10), .step_tokens = 512}, prompts);
  // 80 + 80 + (40 of the first, 20 of the second).
  EXPECT_EQ(done[0], milliseconds(28));
  EXPECT_EQ(done[1], milliseconds(28));
}

TEST(ChunkReplay, FinishedPromptsDecodeBesideTheNext) {
  const std::vector<PromptAhead> prompts{{.pending_tokens = 80, .choices = 4},
                                         {.pending_tokens = 80}};
  const std::vector<Nanos> done = replay_prompts(
      model(), {.decodes = {}, .limit = milliseconds(10), .step_tokens = 512}, prompts);
  EXPECT_EQ(done[0], milliseconds(10));
  EXPECT_EQ(done[1], milliseconds(10) + milliseconds(10) + std::chrono::microseconds(2800));
}

TEST(ChunkReplay, ATileGoesInEvenWhereNothingFits) {
  const std::vector<PromptAhead> prompts{{.pending_tokens = 2 * kTileTokens}};
  const std::vector<Nanos> done = replay_prompts(
      model(), {.decodes = {}, .limit = milliseconds(1), .step_tokens = 512}, prompts);
  EXPECT_EQ(done[0], 2 * std::chrono::microseconds(3600));
}

TEST(ChunkReplay, WhatLiesTooFarAheadHasNoTime) {
  const std::vector<PromptAhead> prompts{{.pending_tokens = (kReplaySteps + 1) * kTileTokens}};
  EXPECT_EQ(
      replay_prompts(model(), {.decodes = {}, .limit = Nanos{1}, .step_tokens = 16}, prompts)[0],
      Nanos::max());
  EXPECT_TRUE(replay_prompts(model(), {}, {}).empty());
}

}  // namespace
}  // namespace tandem
