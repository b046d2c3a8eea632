#include "scheduler/policies/neo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "latency/modular_model.h"
#include "latency/regression_model.h"
#include "support/neo_scene.h"

namespace tandem {
namespace {

using testing::decode;
using ::testing::ElementsAre;
using testing::host_of;
using testing::ids;
using ::testing::IsEmpty;
using testing::model;
using testing::parked;
using testing::prompt;
using testing::Scene;
using testing::slices;
using ::testing::UnorderedElementsAre;
using testing::with_residents;

class Neo : public testing::NeoScene {
 protected:
  NeoPolicy& made(double host_per_context_nanos, const NeoRules& rules = {}) {
    return NeoScene::made(host_per_context_nanos, rules, kNeo);
  }
};

// ---------------------------------------------------------------- 1, 2: who is where

TEST_F(Neo, AllDecodesOfTheAcceleratorAreInTheStepWhateverTheirClass) {
  Scene scene{.running = {decode(1, 20), decode(2, 30)}};
  scene.running[1].service_class = ServiceClass::kBestEffort;
  const StepPlan plan = made(1000).plan(scene.view());
  EXPECT_THAT(slices(plan), ElementsAre(std::pair(1, 1), std::pair(2, 1)));
  EXPECT_EQ(plan.mode, StepMode::kGroups);
}

TEST_F(Neo, WhereDecodesNeedMoreBlocksThanThereAreTheLastOnesLeaveForTheFrontOfTheQueue) {
  Scene scene{.running = {decode(1, 17), decode(2, 17), decode(3, 17)},
              .offloaded = {parked(4, 40)}};
  scene.budget.free_blocks = 1;  // each of the three needs one
  NeoPolicy& policy = made(1000);
  const StepPlan plan = policy.plan(scene.view());
  EXPECT_THAT(ids(plan.offload), ElementsAre(3)) << "its block is enough for 2, when it comes";
  EXPECT_THAT(slices(plan), ElementsAre(std::pair(1, 1)));
  EXPECT_THAT(plan.onload, IsEmpty()) << "one direction a step";
  // 3 has arrived there and is the first to return, although 4 is older there.
  scene.running = {decode(1, 18)};
  scene.offloaded = {parked(3, 17), parked(4, 40)};
  scene.budget.free_blocks = 12;
  EXPECT_THAT(ids(policy.plan(scene.view()).onload), ElementsAre(3));
}

TEST_F(Neo, SequencesReturnFromTheFrontWhileFivePercentStayFreeAndNonePassesAnother) {
  Scene scene{.running = {decode(1, 20)},
              .offloaded = {parked(2, 32), parked(3, 64), parked(4, 16)}};
  scene.budget.free_blocks = 10 + 2 + 3;  // five percent, 2, and one block too few for 3
  EXPECT_THAT(ids(made(1000).plan(scene.view()).onload), ElementsAre(2));
  scene.budget.free_blocks = 10 + 2 + 4 + 1;
  EXPECT_THAT(ids(made(1000).plan(scene.view()).onload), ElementsAre(2, 3, 4));
}

TEST_F(Neo, WithoutAHostTheNewestIsComputedAnew) {
  Scene scene{.running = {decode(1, 17), decode(2, 17)}};
  scene.budget.free_blocks = 1;
  scene.budget.host_total_blocks = 0;
  scene.budget.host_free_blocks = 0;
  const StepPlan plan = made(1000).plan(scene.view());
  EXPECT_THAT(ids(plan.preempt), ElementsAre(2));
  EXPECT_THAT(plan.offload, IsEmpty());
}

// ---------------------------------------------------------------- 3: prompts

TEST_F(Neo, PromptsBeginWholeAndInOrderUntilRowsAreUsedUp) {
  Scene scene{.waiting = {prompt(1, 200), prompt(2, 400), prompt(3, 10)}};
  const StepPlan plan = made(1000).plan(scene.view());
  EXPECT_THAT(slices(plan), ElementsAre(std::pair(1, 200)))
      << "2 finds 312 rows of 400, and 3 does not pass it";
}

TEST_F(Neo, APromptLongerThanAStepIsComputedInChunks) {
  Scene scene{.waiting = {prompt(1, 1000)}};
  EXPECT_THAT(slices(made(1000).plan(scene.view())), ElementsAre(std::pair(1, 512)));
}

// Two prompts, of which the first finds no room on the accelerator.
TEST_F(Neo, ThePromptWithoutRoomGoesToTheHostAndAllLaterOnesOfTheRoundToo) {
  Scene scene{.running = {decode(1, 160), decode(2, 160)},
              .waiting = {prompt(3, 100), prompt(4, 20)}};
  scene.budget.total_blocks = 25;
  scene.budget.free_blocks = 5;
  NeoPolicy& policy = made(1000);
  StepPlan plan = policy.plan(scene.view());
  EXPECT_THAT(ids(plan.offload), ElementsAre(2)) << "it makes room";
  EXPECT_THAT(plan.admit, IsEmpty());
  // The room has come.
  scene.running = {decode(1, 161)};
  scene.offloaded = {parked(2, 160)};
  scene.budget.free_blocks = 15;
  plan = policy.plan(scene.view());
  EXPECT_THAT(plan.onload, IsEmpty()) << "the room is kept for the prompt";
  EXPECT_THAT(ids(plan.admit), ElementsAre(3, 4));
  // Both are done: they leave for the back of the queue.
  scene.running = {decode(1, 162), decode(3, 101), decode(4, 21)};
  scene.waiting.clear();
  scene.budget.free_blocks = 5;
  plan = policy.plan(scene.view());
  EXPECT_THAT(ids(plan.offload), UnorderedElementsAre(3, 4));
  scene.running = {decode(1, 163)};
  scene.offloaded = {parked(2, 161), parked(3, 101), parked(4, 21)};
  scene.budget.free_blocks = 14;
  EXPECT_THAT(ids(policy.plan(scene.view()).onload), ElementsAre(2)) << "it left for the front";
}

// The same, with staging layers: nothing leaves to make room, and the prompts begin at once.
TEST_F(Neo, OverStagingLayersThePromptWithoutRoomGoesStraightToTheHost) {
  Scene scene{.running = {decode(1, 160), decode(2, 160)},
              .waiting = {prompt(3, 100), prompt(4, 20), prompt(5, 20)}};
  scene.budget.total_blocks = 25;
  scene.budget.free_blocks = 5;
  scene.budget.staging_blocks = 32;
  scene.waiting[2].computed_tokens = 16;  // a cached prefix: it is computed on the accelerator
  NeoPolicy& policy = made(1000);
  const StepPlan plan = policy.plan(scene.view());
  EXPECT_THAT(plan.offload, IsEmpty());
  EXPECT_THAT(ids(plan.admit), UnorderedElementsAre(3, 4, 5));
  EXPECT_THAT(ids(plan.straight_to_host), ElementsAre(3, 4)) << "4 would find room";
  EXPECT_THAT(slices(plan),
              ::testing::IsSupersetOf({std::pair<int64_t, int32_t>(3, 100), {4, 20}, {5, 4}}));
}

TEST_F(Neo, OverStagingLayersPromptsWaitForRowsStagingBlocksAndHostBlocks) {
  Scene scene{.running = {decode(1, 160)}, .waiting = {prompt(2, 100), prompt(3, 90)}};
  scene.budget.free_blocks = 1;
  scene.budget.staging_blocks = 12;  // 7 and 6 are needed
  EXPECT_THAT(ids(made(1000).plan(scene.view()).straight_to_host), ElementsAre(2));
  scene.budget.staging_blocks = 13;
  EXPECT_THAT(ids(made(1000).plan(scene.view()).straight_to_host), ElementsAre(2, 3));
  scene.budget.host_free_blocks = 12;
  EXPECT_THAT(ids(made(1000).plan(scene.view()).straight_to_host), ElementsAre(2));
  scene.budget.tokens = 180;
  scene.budget.host_free_blocks = 1000;
  EXPECT_THAT(ids(made(1000).plan(scene.view()).straight_to_host), ElementsAre(2));
  scene.budget.staging_blocks = 6;
  scene.budget.tokens = 512;
  const StepPlan plan = made(1000).plan(scene.view());
  EXPECT_THAT(plan.straight_to_host, IsEmpty()) << "it never fits, so room is made for it";
  EXPECT_THAT(ids(plan.offload), ElementsAre(1));
}

TEST_F(Neo, APromptWaitsWhileTheHostMightNotHoldWhatTheAcceleratorHas) {
  Scene scene{.running = {decode(9, 20)}, .waiting = {prompt(1, 100)}};
  scene.budget.host_total_blocks = scene.budget.total_blocks + 6;  // of 7 that it will need
  EXPECT_THAT(made(1000).plan(scene.view()).admit, IsEmpty());
  scene.budget.host_total_blocks += 1;
  EXPECT_THAT(ids(made(1000).plan(scene.view()).admit), ElementsAre(1));
}

// A fault of the original that ends in a hang, mended.
TEST_F(Neo, AHostThatIsNotLargerThanTheAcceleratorDoesNotKeepAllFromBeginning) {
  Scene scene{.running = {decode(9, 20)}, .waiting = {prompt(1, 100)}};
  scene.budget.host_total_blocks = scene.budget.total_blocks;
  EXPECT_THAT(ids(made(1000).plan(scene.view()).admit), ElementsAre(1));
}

TEST_F(Neo, APromptThatTheHostWouldNeverHoldBeginsAlone) {
  Scene scene{.waiting = {prompt(1, 100), prompt(2, 100)}};
  scene.budget.host_total_blocks = scene.budget.total_blocks + 1;
  EXPECT_THAT(ids(made(1000).plan(scene.view()).admit), ElementsAre(1));
}

// A fault of the original that costs time, kept: nothing is reserved for output.
TEST_F(Neo, APromptBeginsWithoutRoomForItsOutputSoThatASequenceLeavesAgain) {
  Scene scene{.running = {decode(1, 16 * 18)}, .waiting = {prompt(2, 16 * 6 - 1)}};
  scene.budget.total_blocks = 24;
  scene.budget.free_blocks = 6;
  NeoPolicy& policy = made(1000);
  EXPECT_THAT(ids(policy.plan(scene.view()).admit), ElementsAre(2)) << "not a block is left";
  scene.running = {decode(1, 16 * 18 + 1), decode(2, 16 * 6)};
  scene.waiting.clear();
  scene.budget.free_blocks = 0;
  const StepPlan plan = policy.plan(scene.view());
  EXPECT_THAT(ids(plan.offload), ElementsAre(2)) << "after one token";
}

// ---------------------------------------------------------------- 4, 5, 6: lanes

TEST_F(Neo, HostDecodesJoinTheLaneWithMoreSlackAndOthersSitOut) {
  // 60 us each: the second lane's window is the 80 us of the first one's dense stage.
  const Scene scene = with_residents({parked(11, 60), parked(12, 60), parked(13, 60)});
  const StepPlan plan = made(1000).plan(scene.view());
  EXPECT_EQ(plan.mode, StepMode::kLanes);
  EXPECT_THAT(ids(plan.first_lane), ElementsAre(12, 13));
  EXPECT_THAT(plan.hold, IsEmpty());
  const Scene slower = with_residents({parked(11, 60), parked(12, 900), parked(13, 60)});
  const StepPlan cut = made(1000).plan(slower.view());
  EXPECT_THAT(ids(cut.hold), ElementsAre(12)) << "as long as both windows together";
  EXPECT_THAT(ids(cut.first_lane), ElementsAre(13));
}

TEST_F(Neo, WithoutATokenForTheSecondLaneTheStepHasNoLanes) {
  const Scene scene = with_residents({parked(11, 100)});  // 100 us, and the window is 80
  const StepPlan plan = made(1000).plan(scene.view());
  EXPECT_EQ(plan.mode, StepMode::kGroups);
  EXPECT_THAT(ids(plan.hold), ElementsAre(11));
}

// A fault of the original that costs time, kept: a long sequence starves behind short ones.
TEST_F(Neo, ALongSequenceStarvesWhileShortOnesFit) {
  Scene scene = with_residents({parked(11, 100), parked(12, 20), parked(13, 20)});
  NeoPolicy& policy = made(1000);
  for (int32_t step = 0; step < 500; ++step) {
    const StepPlan plan = policy.plan(scene.view());
    ASSERT_EQ(plan.mode, StepMode::kLanes);
    ASSERT_THAT(ids(plan.hold), ElementsAre(11)) << "step " << step;
  }
}

TEST_F(Neo, TheTermsOfTheCodeCountLaunchesAndThoseOfThePaperDoNot) {
  latency::HostTimes host = host_of(1000);
  host.launch.per_lane_stage_nanos = 30'000;
  const Scene scene = with_residents({parked(11, 60)});  // 60 us of 80, and 30 us of launching
  const Beliefs beliefs{.step_times = &model(), .host_times = &host};
  NeoPolicy code({.windows = LaneWindows::kCode}, kNeo, beliefs);
  EXPECT_EQ(code.plan(scene.view()).mode, StepMode::kGroups);
  NeoPolicy paper({.windows = LaneWindows::kPaper}, kNeo, beliefs);
  EXPECT_EQ(paper.plan(scene.view()).mode, StepMode::kLanes);
}

TEST_F(Neo, PromptsForTheHostLeaveTheStepWhile128RowsStayAndTheHostIsHidden) {
  // Room for both prompts, but not for a third one like the first: they are bound for the host.
  Scene scene = with_residents({parked(11, 20), parked(12, 20)});
  scene.offloaded.front().transfer_blocks = 40;  // does not return
  scene.budget.free_blocks = 12;
  scene.waiting = {prompt(21, 110), prompt(22, 40)};
  EXPECT_THAT(ids(made(1000).plan(scene.view()).admit), ElementsAre(21, 22))
      << "the residents, a visitor and the first prompt are fewer than 128 rows";
  scene.budget.free_blocks = 14;
  scene.waiting = {prompt(21, 130), prompt(22, 60)};
  EXPECT_THAT(ids(made(1000).plan(scene.view()).admit), ElementsAre(21));
}

TEST_F(Neo, LanesAreTakenOnlyIfTheyServeMoreRequestsPerTime) {
  // One resident of 16,000 tokens: 10 us dense, 1,600 us of attention. A visitor adds 10 us.
  Scene scene{.running = {decode(1, 16'000)}, .offloaded = {parked(11, 9)}};
  scene.budget.free_blocks = 9;
  EXPECT_EQ(made(1000).plan(scene.view()).mode, StepMode::kLanes) << "two requests for 1 % more";
  // Where a second pass over the weights costs as much as all of it, one more of many is no gain.
  latency::ModularCosts costs;
  costs.layers = 1;
  costs.dense = latency::Ladder::through({{1, 1e6}, {100, 1.01e6}}).value();
  const latency::CorrectedModel steep(
      std::make_unique<latency::ModularModel>(latency::ModularModel::create(costs).value()));
  const latency::HostTimes host = host_of(10);
  NeoPolicy policy({}, kNeo, Beliefs{.step_times = &steep, .host_times = &host});
  const StepPlan plan = policy.plan(with_residents({parked(11, 20)}).view());
  EXPECT_EQ(plan.mode, StepMode::kGroups) << "9 requests in 2 ms are fewer per time than 8 in 1 ms";
  EXPECT_THAT(ids(plan.hold), ElementsAre(11));
}

// A fault of the original that ends in a hang, mended.
TEST_F(Neo, LoneSequencesThatAreTooLargeToReturnGoOnOnTheHost) {
  Scene scene{.offloaded = {parked(1, 4000), parked(2, 4000), parked(3, 4000)}};
  const StepPlan plan = made(1e6).plan(scene.view());
  EXPECT_EQ(plan.mode, StepMode::kLanes);
  EXPECT_THAT(ids(plan.first_lane), ElementsAre(1, 3));
  EXPECT_THAT(plan.hold, IsEmpty());
}

TEST_F(Neo, ATokenThatIsLateKeepsItsLaneAndCountsInIt) {
  Scene scene = with_residents({parked(11, 70), parked(12, 60)});
  scene.offloaded[0].state = SequenceState::kParkedInFlight;
  scene.offloaded[0].lane = 1;
  const StepPlan plan = made(1000).plan(scene.view());
  EXPECT_EQ(plan.mode, StepMode::kLanes);
  EXPECT_THAT(ids(plan.hold), ElementsAre(12)) << "70 us of 80 are taken; NEO asks no other lane";
}

// ---------------------------------------------------------------- FastDecode+

TEST_F(Neo, FastDecodeAttendsForAllDecodesOnTheHost) {
  NeoPolicy& policy = made(1000, {.all_on_host = true});
  Scene scene{.running = {decode(1, 100), decode(2, 100)}};
  StepPlan plan = policy.plan(scene.view());
  EXPECT_THAT(ids(plan.offload), ElementsAre(1, 2));
  EXPECT_THAT(plan.slices, IsEmpty());
  scene = {.offloaded = {parked(1, 100), parked(2, 100)}, .waiting = {prompt(3, 50)}};
  plan = policy.plan(scene.view());
  EXPECT_EQ(plan.mode, StepMode::kLanes);
  EXPECT_THAT(plan.onload, IsEmpty());
  EXPECT_THAT(plan.hold, IsEmpty()) << "whatever the host takes";
  EXPECT_THAT(slices(plan), ElementsAre(std::pair(3, 50)));
  EXPECT_THAT(plan.straight_to_host, IsEmpty());
  scene.budget.staging_blocks = 32;
  EXPECT_THAT(ids(policy.plan(scene.view()).straight_to_host), ElementsAre(3));
}

TEST(NeoOptions, AModelOfWholeStepsIsRefused) {
  const latency::CorrectedModel whole(std::make_unique<latency::RegressionModel>(
      latency::RegressionModel::create({.layers = 4, .fixed = 1000}).value()));
  const auto made = kNeo.make({}, {.step_times = &whole});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().param, "time-model");
}

// The prompt fills a step, so that it cannot go straight to the host beside a decode; without one
// it could, but the sequence that left for it has the host's blocks. That sequence must not return.
TEST_F(Neo, ASequenceThatLeftForAPromptDoesNotReturnBeforeIt) {
  SequenceView decodes = decode(1, 30);
  decodes.held_blocks = decodes.transfer_blocks = 8;
  Scene scene{.running = {decodes}, .waiting = {prompt(2, 25), prompt(3, 25)}};
  scene.budget.tokens = 25;
  scene.budget.sequences = 8;
  scene.budget.free_blocks = 6;
  scene.budget.total_blocks = 14;
  scene.budget.host_free_blocks = 10;
  scene.budget.host_total_blocks = 10;
  scene.budget.staging_blocks = 8;
  scene.budget.block_tokens = 4;
  NeoPolicy& policy = made(50);
  EXPECT_THAT(ids(policy.plan(scene.view()).offload), ElementsAre(1));
  scene.offloaded = {parked(1, 30)};
  scene.offloaded[0].held_blocks = scene.offloaded[0].transfer_blocks = 8;
  scene.running.clear();
  scene.budget.free_blocks = 14;
  scene.budget.host_free_blocks = 2;
  EXPECT_THAT(policy.plan(scene.view()).onload, IsEmpty());
}

}  // namespace
}  // namespace tandem
