#include "scheduler/slack_binder.h"

#include <gtest/gtest.h>

#include "latency/modular_model.h"

namespace tandem {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Counts = std::vector<int32_t>;

// Four layers, 1 ms a row in all of them: a row at one stage takes 0.25 ms.
const latency::ModularModel& slack_model() {
  static const latency::ModularModel times =
      latency::simple_model({.layers = 4, .per_row = milliseconds(1)});
  return times;
}

// A step of eight decodes: 8 ms.
StepForecast forecast(Nanos limit) {
  StepForecast made{.step = 1, .shape = {}, .limit = limit};
  for (int i = 0; i < 8; ++i) {
    made.shape.add_decode(10);
  }
  return made;
}

Counts bind(SlackBinder& binder, int64_t step, Nanos now, int32_t stage, const Counts& ready,
            const Counts& credits = {}) {
  const Counts plenty(ready.size(), 100);
  BindDecision decision;
  binder.bind({.now = now,
               .step = step,
               .first_stage = stage,
               .last_stage = 4,
               .resident_rows = 8,
               .row_room = 50,
               .logit_room = 50,
               .ready = ready,
               .credits = credits.empty() ? plenty : credits},
              decision);
  return decision.visitors;
}

TEST(SlackBinder, GivesTheSlackToTheLowestStageFirst) {
  StepForecast step = forecast(milliseconds(9));  // four visits to spare
  SlackBinder binder(step, slack_model(), 10);
  EXPECT_EQ(bind(binder, 1, Nanos{0}, 0, {3, 3, 3}), (Counts{3, 1, 0}));
}

TEST(SlackBinder, OverdueRowsHaveTheirCreditsBeforeOthersOfLowerStages) {
  StepForecast step = forecast(Nanos::max());
  SlackBinder binder(step, slack_model(), 10);
  EXPECT_EQ(bind(binder, 1, Nanos{0}, 0, {0, 2}, {0, 0}), (Counts{0, 0}));
  EXPECT_EQ(bind(binder, 11, Nanos{0}, 0, {5, 2}, {3, 3}), (Counts{1, 2}));
}

TEST(SlackBinder, ReadsTheTimeAnewAtEachBind) {
  StepForecast step = forecast(milliseconds(9));
  SlackBinder binder(step, slack_model(), 10);
  EXPECT_EQ(bind(binder, 1, milliseconds(100), 0, {2}), (Counts{2}));
  // Stage 2 should begin after 4 ms; the step is a millisecond ahead, so another four fit.
  EXPECT_EQ(bind(binder, 1, milliseconds(103), 2, {20}), (Counts{8}));
  // Here it lags behind its limit: nobody joins.
  EXPECT_EQ(bind(binder, 1, milliseconds(108), 3, {20}), (Counts{0}));
}

// As StepRun binds: two groups at once, then one group ahead of the accelerator.
TEST(SlackBinder, WhatIsLaunchedAndNotDoneIsNotFree) {
  StepForecast step = forecast(milliseconds(9));  // four visits to spare
  SlackBinder binder(step, slack_model(), 10);
  const auto bind_behind = [&](Nanos now, int32_t stage, int32_t ready,
                               const std::vector<LaunchedGroup>& launched, Nanos oldest_runs) {
    const Counts rows = {ready};
    const Counts plenty = {100};
    BindDecision decision;
    binder.bind({.now = now,
                 .step = 1,
                 .first_stage = stage,
                 .last_stage = 4,
                 .resident_rows = 8,
                 .row_room = 50,
                 .logit_room = 50,
                 .ready = rows,
                 .credits = plenty,
                 .launched = launched,
                 .oldest_runs = oldest_runs},
                decision);
    return decision.visitors.front();
  };
  EXPECT_EQ(bind_behind(Nanos{0}, 0, 1, {}, Nanos{0}), 1);
  // A stage takes 2 ms, this one with its visitor 2.25.
  EXPECT_EQ(bind_behind(Nanos{0}, 1, 2, {{0, 1}}, Nanos{0}), 2);
  // The accelerator is half a millisecond ahead of the model: three visits fit, not thirteen.
  EXPECT_EQ(bind_behind(microseconds(1750), 2, 20, {{1, 2}}, Nanos{0}), 3);
  // It lags: the oldest group should have ended long ago, and what is behind it counts.
  EXPECT_EQ(bind_behind(microseconds(6000), 3, 20, {{1, 2}, {2, 3}}, microseconds(4250)), 0);
}

// A record may say so of a step that this policy has planned without lanes.
TEST(SlackBinder, AGroupOfALaneMayEndBehindTheLastStage) {
  StepForecast step = forecast(milliseconds(9));
  SlackBinder binder(step, slack_model(), 10);
  const Counts rows = {1};
  const Counts plenty = {100};
  const std::vector<LaunchedGroup> launched = {{4, 5}};
  BindDecision decision;
  binder.bind({.step = 1,
               .mode = StepMode::kLanes,
               .first_stage = 4,
               .last_stage = 4,
               .resident_rows = 8,
               .row_room = 50,
               .logit_room = 50,
               .ready = rows,
               .credits = plenty,
               .launched = launched},
              decision);
  EXPECT_EQ(decision.visitors, rows);
}

TEST(SlackBinder, ARowThatWaitedLongEnoughJoinsWhateverTheTime) {
  StepForecast step = forecast(milliseconds(1));
  SlackBinder binder(step, slack_model(), 3);
  for (int64_t number = 1; number <= 3; ++number) {
    step.step = number;
    // Another row comes in each step.
    EXPECT_EQ(bind(binder, number, Nanos{0}, 1, {static_cast<int32_t>(number)}), (Counts{0}));
  }
  for (int64_t number = 4; number <= 6; ++number) {
    step.step = number;
    EXPECT_EQ(bind(binder, number, Nanos{0}, 1, {3}), (Counts{1})) << number;
  }
}

TEST(SlackBinder, RowsThatLeaveOtherwiseAreForgotten) {
  StepForecast step = forecast(milliseconds(1));
  SlackBinder binder(step, slack_model(), 2);
  EXPECT_EQ(bind(binder, 1, Nanos{0}, 1, {5}), (Counts{0}));
  step.step = 2;
  EXPECT_EQ(bind(binder, 2, Nanos{0}, 1, {0}), (Counts{0}));  // all cancelled
  step.step = 3;
  EXPECT_EQ(bind(binder, 3, Nanos{0}, 1, {4}), (Counts{0}));  // new ones
}

TEST(SlackBinder, WithoutALimitOnlyRowsAndCreditsCount) {
  StepForecast step = forecast(Nanos::max());
  SlackBinder binder(step, slack_model(), 2);
  EXPECT_EQ(bind(binder, 1, Nanos{0}, 0, {9, 9}, {12, 12}), (Counts{9, 3}));
  EXPECT_EQ(bind(binder, 1, Nanos{0}, 2, {60}), (Counts{50}));
}

TEST(SlackBinder, AStepOfVisitorsAloneTakesWhoeverIsReady) {
  StepForecast step{.step = 1, .shape = {}, .limit = milliseconds(1)};
  SlackBinder binder(step, slack_model(), 2);
  EXPECT_EQ(bind(binder, 1, Nanos{0}, 0, {0}), (Counts{0}));
  EXPECT_EQ(bind(binder, 1, milliseconds(50), 1, {4}), (Counts{4}));
}

}  // namespace
}  // namespace tandem
