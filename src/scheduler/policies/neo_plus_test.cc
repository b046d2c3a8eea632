// neo_plus, with the rules by which a slow host costs nothing. apex_plus has the same rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "latency/modular_model.h"
#include "scheduler/policies/neo.h"
#include "support/apex_scene.h"

namespace tandem {
namespace {

using testing::best_effort;
using ::testing::Contains;
using testing::decode;
using ::testing::ElementsAre;
using testing::ids;
using testing::in_flight;
using ::testing::IsEmpty;
using testing::model;
using testing::parked;
using testing::parked_best_effort;
using testing::prompt;
using testing::Scene;
using testing::with_residents;

class NeoPlus : public testing::NeoScene {
 protected:
  NeoPolicy& made(double host_per_context_nanos, const latency::CorrectedModel& times = model()) {
    return made_neo_plus(host_per_context_nanos, times);
  }
};

// A step takes 3.6 ms. The host attends for one of these for 1.2 ms a layer, so that a step with it
// takes some 1.3 ms longer: as much as one percent of 36 steps.
TEST_F(NeoPlus, OverdueDecodesOfASlowHostJoinOneAtATimeForOnePercentOfTheTime) {
  const Scene scene = with_residents(parked_best_effort(32, 600));
  NeoPolicy& policy = made(2000);
  SystemView view = scene.view();
  int lanes = 0;
  for (view.step = 1; view.step <= 400; ++view.step) {
    const StepPlan plan = policy.plan(view);
    if (plan.mode == StepMode::kLanes) {
      ++lanes;
      EXPECT_EQ(plan.hold.size(), 31U);
    }
  }
  EXPECT_GE(lanes, 8);
  EXPECT_LE(lanes, 12);
}

TEST_F(NeoPlus, OverdueDecodesThatWouldTakeManyStepsAreLeftToTheEngine) {
  const Scene scene = with_residents(parked_best_effort(32, 600));
  NeoPolicy& policy = made(200'000);
  SystemView view = scene.view();
  for (view.step = 1; view.step <= 1000; ++view.step) {
    ASSERT_EQ(policy.plan(view).mode, StepMode::kGroups) << view.step;
  }
}

// With the prompt a step takes 11 ms instead of 1 ms, and a second dense stage costs what the eight
// residents would decode in a step without: lanes must give more than that.
TEST_F(NeoPlus, WhatAStepWithAPromptTakesLongerIsWorthWhatOthersDecodeInIt) {
  latency::ModularCosts costs;
  costs.layers = 1;
  costs.dense = latency::Ladder::through({{1, 1e6}, {50, 1e6}, {108, 11e6}, {200, 12e6}}).value();
  const latency::CorrectedModel steep(
      std::make_unique<latency::ModularModel>(latency::ModularModel::create(costs).value()));
  const auto mode_with = [&](int64_t count) {
    Scene scene = with_residents(parked_best_effort(count, 20));
    scene.waiting = {best_effort(prompt(91, 95))};
    const StepPlan plan = made(1, steep).plan(scene.view());
    EXPECT_THAT(ids(plan.admit), Contains(91));
    return plan.mode;
  };
  EXPECT_EQ(mode_with(4), StepMode::kGroups);
  EXPECT_EQ(mode_with(20), StepMode::kLanes);
}

// The last blocks would leave no room for its output, so it is bound for the host, unless the host
// cannot even attend for one such sequence in the time that it has.
TEST_F(NeoPlus, APromptStaysOnTheAcceleratorWhereTheHostIsBelievedToBeLate) {
  const auto leaves = [&](double host_per_context_nanos, int64_t host_blocks) {
    Scene scene = with_residents({});
    scene.waiting = {best_effort(prompt(21, 100))};
    scene.budget.host_total_blocks = host_blocks;
    NeoPolicy& policy = made(host_per_context_nanos);
    EXPECT_THAT(ids(policy.plan(scene.view()).admit), Contains(21));
    scene.running.push_back(best_effort(decode(21, 101)));
    scene.waiting.clear();
    scene.budget.free_blocks = 2;
    return !policy.plan(scene.view()).offload.empty();
  };
  EXPECT_TRUE(leaves(1000, 1000));
  EXPECT_FALSE(leaves(100'000, 1000));
  EXPECT_FALSE(leaves(1000, 5)) << "the host has too few blocks, and the accelerator has room";
}

TEST_F(NeoPlus, APromptThatWaitsIsNotMadeLateByLanes) {
  const auto mode_with_due = [&](Nanos due) {
    Scene scene = with_residents({parked(11, 60), parked(12, 60), parked(13, 60)});
    scene.waiting = {prompt(21, 400)};  // it finds no blocks in this step, and ends in the next
    scene.waiting[0].first_token_due = due;
    return made(10).plan(scene.view()).mode;
  };
  EXPECT_EQ(mode_with_due(Nanos::max()), StepMode::kLanes);
  EXPECT_EQ(mode_with_due(std::chrono::milliseconds(20)), StepMode::kLanes);
  // Two steps of 3.62 ms are in time, and not if the first has lanes.
  EXPECT_EQ(mode_with_due(std::chrono::microseconds(7270)), StepMode::kGroups);
}

// The chat finds no blocks until the resident chats end, the sooner the shorter steps are.
TEST_F(NeoPlus, NoBestEffortPromptGoesToTheHostWhileALatencySensitivePromptWaitsForBlocks) {
  Scene scene{.running = {decode(1, 160), decode(2, 160)},
              .waiting = {prompt(21, 100), best_effort(prompt(22, 100))}};
  scene.budget.total_blocks = 25;
  scene.budget.free_blocks = 5;
  scene.budget.staging_blocks = 32;
  for (const bool overlaps : {false, true}) {
    NeoPolicy& policy = overlaps ? NeoScene::made(10, testing::kPlus, kApexPlus) : made(10);
    EXPECT_THAT(policy.plan(scene.view()).admit, IsEmpty());
    Scene roomy = scene;
    roomy.budget.total_blocks = 32;
    roomy.budget.free_blocks = 12;
    const StepPlan plan = policy.plan(roomy.view());
    EXPECT_THAT(ids(plan.admit), ElementsAre(21, 22));
    EXPECT_THAT(ids(plan.straight_to_host), ElementsAre(22));
  }
}

// A step has 64 rows, of which it keeps one for a token under way, so a prompt of 64 tokens cannot
// go straight to the host. A resident was sent away to make room for it, and must not return before
// it begins, or the two plans would take turns for ever.
TEST_F(NeoPlus, ASequenceSentAwayForAPromptDoesNotReturnBeforeThePromptBegins) {
  Scene scene{.running = {best_effort(decode(1, 60))},
              .offloaded = {best_effort(in_flight(11, 20, 0))},
              .waiting = {best_effort(prompt(21, 64))}};
  scene.budget.tokens = 64;
  scene.budget.total_blocks = 6;
  scene.budget.free_blocks = 2;
  scene.budget.staging_blocks = 4;
  for (const bool overlaps : {false, true}) {
    NeoPolicy& policy = overlaps ? NeoScene::made(10, testing::kPlus, kApexPlus) : made(10);
    EXPECT_THAT(ids(policy.plan(scene.view()).offload), ElementsAre(1));
    Scene after = scene;
    after.running.clear();
    after.offloaded.insert(after.offloaded.begin(), best_effort(parked(1, 60)));
    after.budget.free_blocks = 6;
    const StepPlan plan = policy.plan(after.view());
    EXPECT_THAT(plan.onload, IsEmpty());
    EXPECT_THAT(ids(plan.admit), ElementsAre(21));
  }
}

// Prompts fill each step up to the target, but for the time that an overdue decode needs.
TEST_F(NeoPlus, PromptsLeaveTimeForAnOverdueDecode) {
  Scene scene = with_residents(parked_best_effort(1, 60));
  for (SequenceView& sequence : scene.running) {
    sequence.tpot = std::chrono::milliseconds(12);
  }
  scene.waiting = {best_effort(prompt(21, 2000))};
  scene.budget.free_blocks = 160;
  scene.offloaded[0].transfer_blocks = 400;  // does not return
  NeoPolicy& policy = made(10);
  SystemView view = scene.view();
  for (view.step = 1; view.step <= 6; ++view.step) {
    ASSERT_THAT(ids(policy.plan(view).hold), Contains(11)) << view.step;
  }
  bool joined = false;
  for (; view.step <= 300 && !joined; ++view.step) {
    joined = ids(policy.plan(view).hold).empty();
  }
  EXPECT_TRUE(joined);
}

}  // namespace
}  // namespace tandem
