#include "latency/questions.h"

#include <gtest/gtest.h>

#include "latency/modular_model.h"

namespace tandem::latency {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

const ModularModel kModel = simple_model({.layers = 4,
                                          .fixed = microseconds(100),
                                          .per_row = microseconds(10),
                                          .per_logit = microseconds(50)});

TEST(LargestChunk, FillsTheLimitExactly) {
  StepShape shape;
  shape.add_decode(10);  // 100 + 10 + 50
  const ChunkQuestion question{.prompt = {.pending_tokens = 1000}, .max_tokens = 512};
  EXPECT_EQ(largest_chunk(kModel, shape, question, microseconds(260)), 10);
  EXPECT_EQ(largest_chunk(kModel, shape, question, microseconds(259)), 9);
  EXPECT_EQ(largest_chunk(kModel, shape, question, microseconds(100)), 0);
  EXPECT_EQ(largest_chunk(kModel, shape, question, milliseconds(100)), 512);
}

TEST(LargestChunk, TheLastTokenOfAPromptBringsItsLogits) {
  const ChunkQuestion question{.prompt = {.computed_tokens = 20, .pending_tokens = 8, .choices = 2},
                               .max_tokens = 512};
  EXPECT_EQ(largest_chunk(kModel, {}, question, microseconds(280)), 8);
  EXPECT_EQ(largest_chunk(kModel, {}, question, microseconds(279)), 7);
}

TEST(LargestChunk, TheLeastIsGivenWhateverTheLimit) {
  const ChunkQuestion question{
      .prompt = {.pending_tokens = 100}, .max_tokens = 512, .least_tokens = 16};
  EXPECT_EQ(largest_chunk(kModel, {}, question, microseconds(1)), 16);
  EXPECT_EQ(largest_chunk(kModel, {}, question, Nanos::max()), 100);
  EXPECT_EQ(largest_chunk(kModel, {},
                          {.prompt = {.pending_tokens = 7}, .max_tokens = 512, .least_tokens = 16},
                          microseconds(1)),
            7);
}

TEST(LargestChunk, NoRoomIsNoChunk) {
  EXPECT_EQ(largest_chunk(kModel, {}, {.prompt = {.pending_tokens = 5}, .max_tokens = 0},
                          milliseconds(9)),
            0);
  EXPECT_EQ(largest_chunk(kModel, {}, {.prompt = {.pending_tokens = 5}, .max_tokens = -3},
                          milliseconds(9)),
            0);
}

TEST(VisitorReserve, IsWhatTheReadyOnesAddSpreadOverTheStages) {
  StepShape shape;
  shape.add_decode(10);
  EXPECT_EQ(visitor_reserve(kModel, shape, 0), Nanos{0});
  // 10 over 5 stages: 8 visits make each of 4 stages 2 rows wider, 2 have their logits computed.
  EXPECT_EQ(visitor_reserve(kModel, shape, 10), microseconds(2 * 10 + 2 * 50));
}

TEST(VisitorsWithin, FillsTheSlack) {
  const StageRows at{.stage = 1, .rows = 3};  // a row costs a quarter of 10 us there
  EXPECT_EQ(visitors_within(kModel, at, microseconds(10), 100), 4);
  EXPECT_EQ(visitors_within(kModel, at, microseconds(9), 100), 3);
  EXPECT_EQ(visitors_within(kModel, at, microseconds(9), 2), 2);
  EXPECT_EQ(visitors_within(kModel, at, microseconds(1), 100), 0);
  EXPECT_EQ(visitors_within(kModel, at, -microseconds(1), 100), 0);
}

}  // namespace
}  // namespace tandem::latency
