#include "scheduler/policies/apex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "latency/modular_model.h"
#include "latency/regression_model.h"
#include "scheduler/policies/neo.h"
#include "support/apex_scene.h"

namespace tandem {
namespace {

using testing::decode;
using ::testing::ElementsAre;
using testing::host_of;
using testing::ids;
using ::testing::IsEmpty;
using testing::kPlus;
using testing::kPublished;
using testing::model;
using testing::parked;
using testing::prompt;
using testing::Scene;
using testing::slices;
using testing::under_way;
using testing::with_residents;

using Apex = testing::ApexScene;

// ---------------------------------------------------------------- the accelerator first

TEST_F(Apex, WithoutSequencesOnTheHostTheStepIsTheAcceleratorsAlone) {
  const Scene scene{.running = {decode(1, 20), decode(2, 30)}, .waiting = {prompt(3, 40)}};
  const StepPlan plan = made(1000, kPublished).plan(scene.view());
  EXPECT_EQ(plan.mode, StepMode::kGroups);
  EXPECT_THAT(slices(plan), ElementsAre(std::pair(1, 1), std::pair(2, 1), std::pair(3, 40)));
  EXPECT_THAT(plan.offload, IsEmpty());
  EXPECT_FALSE(plan.inequality.has_value());
}

TEST_F(Apex, SequencesGoToTheHostForWantOfBlocksAndReturnWhenThereAreSome) {
  Scene scene{.running = {decode(1, 17), decode(2, 17), decode(3, 17)}};
  scene.budget.free_blocks = 1;  // each of the three needs one
  NeoPolicy& policy = made(1000, kPublished);
  EXPECT_THAT(ids(policy.plan(scene.view()).offload), ElementsAre(3));
  scene.running = {decode(1, 18)};
  scene.offloaded = {parked(3, 17)};
  scene.budget.free_blocks = 100;
  EXPECT_THAT(ids(policy.plan(scene.view()).onload), ElementsAre(3));
}

// NEO keeps as many blocks of the host free as the accelerator has; APEX does not.
TEST_F(Apex, APromptBeginsHoweverFewBlocksTheHostHas) {
  Scene scene{.running = {decode(9, 20)}, .waiting = {prompt(1, 100)}};
  scene.budget.host_total_blocks = scene.budget.total_blocks + 1;
  EXPECT_THAT(ids(made(1000, kPublished).plan(scene.view()).admit), ElementsAre(1));
}

// ---------------------------------------------------------------- lanes or overlap

TEST_F(Apex, LanesWhereTheInequalityHolds) {
  const Scene scene = with_residents({parked(11, 60), parked(12, 60), parked(13, 60)});
  const StepPlan plan = made(1000, kPublished).plan(scene.view());
  EXPECT_EQ(plan.mode, StepMode::kLanes);
  EXPECT_THAT(ids(plan.first_lane), ElementsAre(12, 13)) << "by the windows of the paper";
  ASSERT_TRUE(plan.inequality.has_value());
  EXPECT_NEAR(plan.inequality->rate_ratio, 10, 1e-9);
  EXPECT_NEAR(plan.inequality->bound, 13.2, 1e-9);
}

TEST_F(Apex, OverlapWhereItDoesNot) {
  const Scene scene = with_residents({parked(11, 60), parked(12, 60), parked(13, 60)});
  const StepPlan plan = made(1400, kPublished).plan(scene.view());
  EXPECT_EQ(plan.mode, StepMode::kGroups);
  EXPECT_NEAR(plan.inequality->rate_ratio, 14, 1e-9);
  EXPECT_THAT(plan.hold, IsEmpty());
  EXPECT_THAT(ids(plan.second_lane), ElementsAre(11, 12, 13));
}

// A fault of the original that costs time, kept: the inequality compares lanes with the accelerator
// alone. Where the host would need a step for a handful of tokens it still says lanes, in which
// most of them sit out, and overlap would take all of them.
TEST_F(Apex, LanesAreNotComparedWithOverlap) {
  std::vector<SequenceView> offloaded;
  for (int64_t id = 11; id < 51; ++id) {
    offloaded.push_back(parked(id, 450));
  }
  const Scene scene = with_residents(offloaded);
  const StepPlan plan = made(1100, kPublished).plan(scene.view());
  EXPECT_TRUE(plan.inequality->holds());
  EXPECT_EQ(plan.mode, StepMode::kGroups) << "not one fits beside 80 us of dense work";
  EXPECT_EQ(plan.second_lane.size(), 40U);
  const StepPlan cut = made(160, kPublished).plan(scene.view());
  EXPECT_EQ(cut.mode, StepMode::kLanes);
  EXPECT_GT(cut.hold.size(), 25U);
}

// A fault of the original that costs time, kept: see NEO's placement.
TEST_F(Apex, ALongSequenceStarvesWhileShortOnesFitTheLanes) {
  const Scene scene = with_residents({parked(11, 100), parked(12, 20), parked(13, 20)});
  NeoPolicy& policy = made(1000, kPublished);
  for (int32_t step = 0; step < 500; ++step) {
    const StepPlan plan = policy.plan(scene.view());
    ASSERT_EQ(plan.mode, StepMode::kLanes);
    ASSERT_THAT(ids(plan.hold), ElementsAre(11)) << "step " << step;
  }
}

TEST_F(Apex, StepsWithPromptsHaveALongerWindowAndTheRealOneDiffers) {
  Scene scene = with_residents({parked(11, 60), parked(12, 60)});
  scene.budget.free_blocks = 60;
  for (SequenceView& sequence : scene.offloaded) {
    sequence.transfer_blocks = 90;  // does not return
  }
  scene.waiting = {prompt(21, 20)};
  const StepPlan printed = made(1000, kPublished).plan(scene.view());
  EXPECT_THAT(slices(printed), ::testing::Contains(std::pair(21, 20)));
  // T_l 80 and T_g 800 us; with the prompt 280 and 800 us.
  const double window = 280 + 80 + 800;
  EXPECT_NEAR(printed.inequality->bound, window / (800 * (960.0 / 880 - 1)), 1e-6);
  NeoRules real = kPublished;
  real.mixed_window = MixedWindow::kReal;
  EXPECT_NEAR(made(1000, real).plan(scene.view()).inequality->bound,
              window / (800 * (window / 1080 - 1)), 1e-6);
}

// ---------------------------------------------------------------- one cohort

TEST_F(Apex, TokensWaitUntilTheCohortBeforeHasItsOwn) {
  Scene scene = with_residents({under_way(11, 60, 2), parked(12, 60), parked(13, 60)});
  NeoPolicy& policy = made(1400, kPublished);
  EXPECT_THAT(ids(policy.plan(scene.view()).hold), ElementsAre(12, 13));
  scene.offloaded[0] = parked(11, 61);
  const StepPlan plan = policy.plan(scene.view());
  EXPECT_THAT(plan.hold, IsEmpty());
  EXPECT_THAT(ids(plan.second_lane), ElementsAre(11, 12, 13));
}

TEST_F(Apex, ACohortThatLanesCannotHideGoesOnByOverlap) {
  // 60 us of the 80 that the second lane has; 120 us.
  const Scene one = with_residents({under_way(11, 60, 2)});
  EXPECT_EQ(made(1000, kPublished).plan(one.view()).mode, StepMode::kLanes);
  const Scene two = with_residents({under_way(11, 60, 2), under_way(12, 60, 2)});
  const StepPlan plan = made(1000, kPublished).plan(two.view());
  EXPECT_TRUE(plan.inequality->holds());
  EXPECT_EQ(plan.mode, StepMode::kGroups);
}

TEST_F(Apex, StepsWithoutResidentsHaveLanesInWhichNoneSitsOut) {
  const Scene scene{.offloaded = {parked(1, 4000), parked(2, 4000), parked(3, 4000)}};
  const StepPlan plan = made(1e6, kPublished).plan(scene.view());
  EXPECT_EQ(plan.mode, StepMode::kLanes);
  EXPECT_THAT(ids(plan.first_lane), ElementsAre(1, 3));
  EXPECT_THAT(plan.hold, IsEmpty());
}

// ---------------------------------------------------------------- the threshold

// As published, eight rows of the host for each of the step. A fault that costs time, kept: fewer
// sequences get nothing there for as long as others decode.
TEST_F(Apex, FewSequencesWaitForOthersWithThePrintedThreshold) {
  NeoRules rules = kPublished;
  rules.min_host_rows = 8;
  Scene scene{.running = {decode(1, 1000)}};
  for (int64_t id = 11; id < 18; ++id) {
    scene.offloaded.push_back(parked(id, 60));
  }
  scene.budget.free_blocks = 9;
  NeoPolicy& policy = made(1400, rules);
  const StepPlan few = policy.plan(scene.view());
  EXPECT_EQ(few.hold.size(), 7U);
  EXPECT_EQ(few.mode, StepMode::kGroups);
  scene.offloaded.push_back(parked(18, 60));
  EXPECT_THAT(policy.plan(scene.view()).hold, IsEmpty());
  // Those that have begun go on.
  scene.offloaded.pop_back();
  scene.offloaded[0] = under_way(11, 60, 1);
  EXPECT_NE(policy.plan(scene.view()).mode, StepMode::kLanes);
}

TEST_F(Apex, WithoutANumberTheHostBeginsWhenItPays) {
  // A second pass over the weights costs as much as the first, and another row as much as a step.
  latency::ModularCosts costs;
  costs.layers = 1;
  costs.dense = latency::Ladder::through({{1, 1e6}, {8, 1e6}, {9, 3e6}, {100, 3e6}}).value();
  const latency::CorrectedModel steep(
      std::make_unique<latency::ModularModel>(latency::ModularModel::create(costs).value()));
  latency::HostTimes host = host_of(10);
  NeoPolicy policy(kPublished, kApex, Beliefs{.step_times = &steep, .host_times = &host});
  std::vector<SequenceView> offloaded = {parked(11, 20), parked(12, 20)};
  EXPECT_EQ(policy.plan(with_residents(offloaded).view()).hold.size(), 2U)
      << "8 tokens in 1 ms are more than 9 in 3 ms";
  for (int64_t id = 13; id < 60; ++id) {
    offloaded.push_back(parked(id, 20));
  }
  EXPECT_THAT(policy.plan(with_residents(offloaded).view()).hold, IsEmpty())
      << "32 tokens in 3 ms are not";
}

// The inequality takes the host for saturated. One sequence gives no token for which a second pass
// over the weights would pay.
TEST_F(Apex, WithoutANumberLanesMustPayWithTheSequencesThatAreThere) {
  latency::ModularCosts costs;
  costs.layers = 1;
  costs.dense = latency::Ladder::through({{1, 1e6}, {100, 1.001e6}}).value();
  costs.decode.per_context = 1;
  const latency::CorrectedModel flat(
      std::make_unique<latency::ModularModel>(latency::ModularModel::create(costs).value()));
  const latency::HostTimes host = host_of(1);
  const auto mode_of = [&](int64_t sequences, int32_t min_host_rows) {
    NeoRules rules = kPublished;
    rules.min_host_rows = min_host_rows;
    NeoPolicy policy(rules, kApex, Beliefs{.step_times = &flat, .host_times = &host});
    std::vector<SequenceView> offloaded;
    for (int64_t id = 11; id < 11 + sequences; ++id) {
      offloaded.push_back(parked(id, 60));
    }
    const StepPlan plan = policy.plan(with_residents(offloaded).view());
    EXPECT_TRUE(plan.inequality->holds());
    return plan.mode;
  };
  EXPECT_EQ(mode_of(1, 0), StepMode::kGroups);
  EXPECT_EQ(mode_of(12, 0), StepMode::kLanes);
  EXPECT_EQ(mode_of(8, 1), StepMode::kLanes) << "a given threshold decides alone";
}

TEST_F(Apex, TheAcceleratorComesFirstForAPromptThatFits) {
  Scene scene = with_residents({parked(11, 60)});
  scene.offloaded[0].transfer_blocks = 90;  // does not return
  scene.waiting = {prompt(21, 100)};        // 7 of 9 blocks: a second one would find none
  NeoPolicy& policy = made(1000, kPublished);
  EXPECT_THAT(ids(policy.plan(scene.view()).admit), ElementsAre(21));
  scene.running.push_back(decode(21, 101));
  scene.waiting.clear();
  scene.budget.free_blocks = 2;
  EXPECT_THAT(policy.plan(scene.view()).offload, IsEmpty());
}

// ---------------------------------------------------------------- apex_plus

TEST_F(Apex, PlusTokensDoNotWaitForTheirCohort) {
  const latency::HostTimes host = host_of(1);
  const auto made_plus = kApexPlus.make({}, {.step_times = &model(), .host_times = &host});
  ASSERT_TRUE(made_plus.ok());
  const std::vector<int32_t> ready = {2, 3};
  const std::vector<int32_t> coming = {1, 0};
  const std::vector<int32_t> credits = {10, 10};
  const BindView view{.last_stage = 4,
                      .row_room = 10,
                      .logit_room = 10,
                      .ready = ready,
                      .coming = coming,
                      .credits = credits};
  BindDecision decision;
  made_plus->make_binder()->bind(view, decision);
  EXPECT_THAT(decision.visitors, ElementsAre(2, 3));
}

TEST_F(Apex, PlusLetsAsManyEnterAsTheTargetAllows) {
  std::vector<SequenceView> offloaded;
  for (int64_t id = 11; id < 21; ++id) {
    offloaded.push_back(parked(id, 900));
    offloaded.back().service_class = ServiceClass::kBestEffort;
  }
  Scene scene = with_residents(offloaded);
  for (SequenceView& sequence : scene.running) {
    sequence.tpot = std::chrono::microseconds(3660);  // 40 us more than a step without
  }
  const StepPlan plan = made(1000, kPlus).plan(scene.view());
  EXPECT_EQ(plan.mode, StepMode::kGroups);
  EXPECT_EQ(plan.second_lane.size(), 5U) << "10 us at each of four stages, and none at the last";
}

// The host keeps up with fewer than are under way, and 32 others are overdue.
TEST_F(Apex, PlusLetsOneOverdueSequenceEnterBeyondTheLimit) {
  std::vector<SequenceView> offloaded;
  for (int64_t id = 11; id < 31; ++id) {
    offloaded.push_back(under_way(id, 400, 2));
  }
  for (int64_t id = 31; id < 63; ++id) {
    offloaded.push_back(parked(id, 400));
    offloaded.back().service_class = ServiceClass::kBestEffort;
  }
  Scene scene = with_residents(offloaded);
  NeoPolicy& policy = made(20'000, kPlus);
  SystemView view = scene.view();
  const auto next = [&] {  // 16 of the 20 make a hop
    for (size_t i = 0; i < 16; ++i) {
      scene.offloaded[i].stage = scene.offloaded[i].stage % 3 + 1;
      scene.offloaded[i].known_tokens += scene.offloaded[i].stage == 1 ? 1 : 0;
    }
    const int64_t step = view.step + 1;
    view = scene.view();
    view.step = step;
    return policy.plan(view);
  };
  next();
  while (view.step < 8) {
    ASSERT_THAT(next().second_lane, IsEmpty()) << view.step;
  }
  int64_t entered = 0;
  for (int i = 0; i < 40; ++i) {
    const StepPlan plan = next();
    ASSERT_EQ(plan.mode, StepMode::kGroups);
    entered = std::max(entered, std::ssize(plan.second_lane));
  }
  EXPECT_LE(entered, 1);
}

TEST_F(Apex, ReadsStages) {
  EXPECT_TRUE(made(1000, kPublished).reads_stages());
  EXPECT_TRUE(made(1000, kPlus).reads_stages());
}

TEST_F(Apex, PlusTakesWhateverGivesTheMostTokensPerTime) {
  // A fast host: lanes give three tokens more for 30 us a layer.
  const Scene few = with_residents({parked(11, 60), parked(12, 60), parked(13, 60)});
  EXPECT_EQ(made(10, kPlus).plan(few.view()).mode, StepMode::kLanes);
  // A slow one could attend for none of them in the time of a layer; in overlap some four go on in
  // each step.
  std::vector<SequenceView> many;
  for (int64_t id = 11; id < 31; ++id) {
    many.push_back(parked(id, 800));
  }
  const Scene slow = with_residents(many);
  const StepPlan plan = made(1200, kPlus).plan(slow.view());
  EXPECT_EQ(plan.mode, StepMode::kGroups);
  EXPECT_EQ(plan.second_lane.size(), 20U);
}

TEST_F(Apex, PlusHasSeveralCohorts) {
  const Scene scene = with_residents({under_way(11, 900, 2), parked(12, 900), parked(13, 900)});
  const StepPlan plan = made(2000, kPlus).plan(scene.view());
  EXPECT_EQ(plan.mode, StepMode::kGroups);
  EXPECT_THAT(ids(plan.second_lane), ElementsAre(12, 13));
  EXPECT_THAT(plan.hold, IsEmpty());
}

// Where a second dense stage takes as long as the first, lanes double the time of a step, but with
// tokens that are nearly through they double only the rest of it.
TEST_F(Apex, PlusFinishesPartlyAdvancedTokensInTheSecondLane) {
  latency::ModularCosts costs;
  costs.layers = 10;
  costs.dense = latency::Ladder::through({{1, 1e6}, {100, 1.001e6}}).value();
  costs.decode.per_context = 1;
  const latency::CorrectedModel flat(
      std::make_unique<latency::ModularModel>(latency::ModularModel::create(costs).value()));
  const latency::HostTimes host = host_of(1);
  const auto mode_of = [&](int64_t tokens, uint8_t lane) {
    NeoPolicy policy(kPlus, kApexPlus, Beliefs{.step_times = &flat, .host_times = &host});
    std::vector<SequenceView> offloaded;
    for (int64_t id = 11; id < 11 + tokens; ++id) {
      offloaded.push_back(under_way(id, 60, 9, lane));
    }
    return policy.plan(with_residents(offloaded).view()).mode;
  };
  // Two of 11 stages are left. 8 + 15 * 2 / 11 tokens in 1.1 steps against 8 + 15 / 11 in one.
  EXPECT_EQ(mode_of(15, 1), StepMode::kLanes);
  EXPECT_EQ(mode_of(5, 1), StepMode::kGroups);
}

TEST_F(Apex, PlusTakesIntoOverlapOnlySequencesWhoseTargetAllowsIt) {
  Scene scene = with_residents({parked(11, 900), parked(12, 900), parked(13, 900)});
  // A step takes some 3.6 ms, a token five of them.
  scene.offloaded[0].tpot = std::chrono::milliseconds(10);
  scene.offloaded[1].tpot = std::chrono::milliseconds(40);
  for (SequenceView& sequence : scene.offloaded) {
    sequence.service_class = ServiceClass::kBestEffort;
  }
  NeoPolicy& policy = made(2000, kPlus);
  SystemView view = scene.view();
  for (view.step = 1; view.step < 8; ++view.step) {
    const StepPlan plan = policy.plan(view);
    ASSERT_EQ(plan.mode, StepMode::kGroups);
    ASSERT_THAT(ids(plan.hold), ElementsAre(11)) << view.step;
  }
  // None sits out for longer than its patience.
  view.step = 12;
  EXPECT_THAT(policy.plan(view).hold, IsEmpty());
}

TEST_F(Apex, PlusLetsALatencySensitiveSequenceWaitAndComeBackInstead) {
  Scene scene = with_residents({parked(11, 900)});
  for (SequenceView& sequence : scene.running) {
    sequence.service_class = ServiceClass::kBestEffort;
  }
  scene.offloaded[0].tpot = std::chrono::milliseconds(10);
  NeoPolicy& policy = made(2000, kPlus);
  SystemView view = scene.view();
  view.step = 1;
  policy.plan(view);  // what a step takes is known from now on
  for (view.step = 2; view.step < 5; ++view.step) {
    const StepPlan plan = policy.plan(view);
    EXPECT_THAT(ids(plan.hold), ::testing::Contains(11)) << view.step;
    EXPECT_FALSE(plan.offload.empty()) << "best effort makes room for it";
  }
}

TEST_F(Apex, PlusOffloadsFewerWhileTheHostIsMeasuredToTakeLonger) {
  std::vector<SequenceView> offloaded;
  for (int64_t id = 11; id < 31; ++id) {
    offloaded.push_back(under_way(id, 400, 2));
  }
  Scene scene = with_residents(offloaded);
  scene.waiting = {prompt(41, 200)};  // for the host: the accelerator has no room
  scene.waiting[0].service_class = ServiceClass::kBestEffort;
  for (SequenceView& sequence : scene.running) {
    sequence.service_class = ServiceClass::kBestEffort;
  }
  NeoPolicy& policy = made(375, kPlus);  // believed to need 3 ms for a step of some 3.7 ms
  SystemView view = scene.view();
  view.step = 1;
  EXPECT_FALSE(policy.plan(view).offload.empty()) << "room is made for the prompt";
  view.step = 2;  // not one has gone on
  EXPECT_THAT(policy.plan(view).offload, IsEmpty());
  // All go on, and half of them wait for their next token.
  for (size_t i = 0; i < 20; ++i) {
    SequenceView& sequence = scene.offloaded[i];
    sequence.stage = i < 10 ? -1 : 3;
    if (i < 10) {
      sequence.state = SequenceState::kParkedWaiting;
      ++sequence.known_tokens;
    }
  }
  view = scene.view();
  view.step = 3;
  const StepPlan plan = policy.plan(view);
  EXPECT_EQ(plan.mode, StepMode::kGroups);
  EXPECT_EQ(plan.second_lane.size(), 6U) << "16 at a time: 15, and one more for a step in time";
  EXPECT_EQ(plan.hold.size(), 4U);
}

TEST(ApexOptions, AModelOfWholeStepsIsRefused) {
  const latency::CorrectedModel whole(std::make_unique<latency::RegressionModel>(
      latency::RegressionModel::create({.layers = 4, .fixed = 1000}).value()));
  for (const PolicyDescriptor* policy : {&kApex, &kApexPlus}) {
    const auto made = policy->make({}, {.step_times = &whole});
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().param, "time-model");
    EXPECT_TRUE(policy->make({}, {.step_times = &model()}).ok());
    EXPECT_TRUE(policy->traits.cohorts);
  }
}

}  // namespace
}  // namespace tandem
