#include "node/replay_executor.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/clock.h"

namespace tandem {
namespace {

// Computes the token of an offloaded sequence in the third step after it has entered.
class LateVisitor final : public StepExecutor {
 public:
  [[nodiscard]] const ExecutorLimits& limits() const override { return limits_; }
  void launch(const StepInput& input) override { launched.push_back(input.step); }
  bool poll(StepResult& result) override {
    result = {};
    result.step = launched.back();
    if (launched.size() == 3) {
      result.visitors.push_back({SequenceId{7}, TokenId{42}, nullptr});
    }
    return true;
  }
  void leave(SequenceId /*offloaded*/) override {}
  TierEvents take_tier_events() override { return {}; }

  std::vector<int64_t> launched;

 private:
  ExecutorLimits limits_;
};

// A binder holds visitors back for the residents of the step that was planned, so the steps that
// bring a recorded token must not look like it.
TEST(ReplayExecutor, StepsThatItAddsAreNotThePlannedOne) {
  LateVisitor real;
  ManualClock clock;
  ReplayExecutor replay(real, real.limits(), clock);
  StepInput input;
  input.step = 5;
  input.entering.push_back({.sequence = SequenceId{7}});
  replay.launch(input);
  replay.expect_visitors({SequenceId{7}});
  StepResult result;
  ASSERT_TRUE(replay.poll(result));
  EXPECT_EQ(replay.problem(), "");
  ASSERT_EQ(result.visitors.size(), 1U);
  EXPECT_EQ(result.visitors.front().token, TokenId{42});
  ASSERT_EQ(real.launched.size(), 3U);
  EXPECT_EQ(real.launched[0], 5);
  EXPECT_LT(real.launched[1], 0);
  EXPECT_LT(real.launched[2], 0);
}

// What was learnt from a step is learnt again, however the lanes and the host do now.
TEST(ReplayExecutor, HandsOverWhatWasCounted) {
  LateVisitor real;
  ManualClock clock;
  ReplayExecutor replay(real, real.limits(), clock);
  const RecordedCounts counts{.visits = 9,
                              .second = {.visits = 6, .stages = 2, .logits = 1},
                              .held = Nanos{40},
                              .host = {.busy = Nanos{70}, .rows = 5, .context = 600}};
  StepResult result;
  for (int64_t step = 1; step <= 2; ++step) {
    StepInput input;
    input.step = step;
    replay.launch(input);
    replay.expect_counts(counts);
    ASSERT_TRUE(replay.poll(result));
    EXPECT_EQ(result.visits, 9);
    EXPECT_EQ(result.second.visits, 6);
    EXPECT_EQ(result.held, Nanos{40});
    EXPECT_EQ(result.host, counts.host);
  }
}

}  // namespace
}  // namespace tandem
