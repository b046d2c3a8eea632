#include "scheduler/join_binders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class JoinBinders : public testing::Test {
 protected:
  BindView view(std::vector<int32_t> ready, std::vector<int32_t> coming) {
    ready_ = std::move(ready);
    coming_ = std::move(coming);
    credits_.assign(ready_.size(), 100);
    return {.first_stage = 3,
            .last_stage = 9,
            .row_room = 100,
            .logit_room = 100,
            .ready = ready_,
            .coming = coming_,
            .credits = credits_};
  }
  static BindDecision ask(Binder& binder, const BindView& view) {
    BindDecision decision;
    binder.bind(view, decision);
    return decision;
  }

  std::vector<int32_t> ready_;
  std::vector<int32_t> coming_;
  std::vector<int32_t> credits_;
};

TEST_F(JoinBinders, ACohortGoesOnWhenAllOfItIsThere) {
  CohortBinder binder;
  EXPECT_THAT(ask(binder, view({2, 3, 4}, {0, 1, 0})).visitors, ElementsAre(2, 0, 4));
  EXPECT_THAT(ask(binder, view({0}, {0})).visitors, ElementsAre(0));
}

TEST_F(JoinBinders, ACohortTakesNoMoreThanThereIsRoomFor) {
  CohortBinder binder;
  BindView tight = view({5, 5, 5}, {1, 0, 0});
  credits_ = {6, 6, 6};
  EXPECT_THAT(ask(binder, tight).visitors, ElementsAre(0, 5, 1)) << "who waits takes no credits";
}

TEST_F(JoinBinders, ACohortNeverHoldsUpTheStep) {
  CohortBinder binder;
  BindView lanes = view({2}, {7});
  lanes.mode = StepMode::kLanes;
  EXPECT_FALSE(ask(binder, lanes).wait);
}

TEST_F(JoinBinders, AStageOfALaneWaitsForThoseOnTheirWay) {
  WaitBinder binder(std::chrono::milliseconds(10));
  BindView lane = view({2}, {1});
  lane.mode = StepMode::kLanes;
  const BindDecision decision = ask(binder, lane);
  EXPECT_TRUE(decision.wait);
  EXPECT_THAT(decision.visitors, IsEmpty());
  lane = view({3}, {0});
  lane.mode = StepMode::kLanes;
  EXPECT_FALSE(ask(binder, lane).wait);
  EXPECT_THAT(ask(binder, lane).visitors, ElementsAre(3));
}

TEST_F(JoinBinders, AStageOfALaneGoesWithoutThoseThatTakeTooLong) {
  WaitBinder binder(std::chrono::milliseconds(10));
  BindView lane = view({2}, {1});
  lane.mode = StepMode::kLanes;
  lane.held = std::chrono::milliseconds(9);
  EXPECT_TRUE(ask(binder, lane).wait);
  lane.held = std::chrono::milliseconds(10);
  EXPECT_FALSE(ask(binder, lane).wait);
  EXPECT_THAT(ask(binder, lane).visitors, ElementsAre(2));
}

// A host that hangs holds visitors back at one stage after another, in one step after another.
TEST_F(JoinBinders, AHostThatHangsHoldsUpLanesForATenthOfTheTimeAtMost) {
  const Nanos patience = std::chrono::milliseconds(10);
  WaitBinder binder(patience);
  Nanos now = std::chrono::seconds(1);
  const Nanos began = now;
  Nanos waited{0};
  for (int bind = 0; bind < 1000; ++bind) {
    BindView lane = view({0}, {1});
    lane.mode = StepMode::kLanes;
    lane.now = now;
    if (ask(binder, lane).wait) {
      now += patience;
      waited += patience;
      lane.now = now;
      lane.held = patience;
      EXPECT_FALSE(ask(binder, lane).wait);
    }
    now += std::chrono::microseconds(500);  // of a stage
  }
  EXPECT_GT(waited, Nanos{0});
  EXPECT_LE(waited * 10, now - began);
}

TEST_F(JoinBinders, WithoutLanesNobodyWaits) {
  WaitBinder binder;
  EXPECT_THAT(ask(binder, view({2, 1}, {4, 0})).visitors, ElementsAre(2, 1));
  EXPECT_FALSE(ask(binder, view({2, 1}, {4, 0})).wait);
}

TEST_F(JoinBinders, OneRuleForLanesAndOneForStepsWithout) {
  LanesOrCohortBinder binder;
  EXPECT_THAT(ask(binder, view({2, 3}, {0, 1})).visitors, ElementsAre(2, 0));
  BindView lane = view({2}, {1});
  lane.mode = StepMode::kLanes;
  EXPECT_TRUE(ask(binder, lane).wait);
}

}  // namespace
}  // namespace tandem
