// apex_plus and neo_plus: which form pays, and how many sequences and rows the host gets for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "latency/modular_model.h"
#include "support/apex_scene.h"

namespace tandem {
namespace {

using testing::best_effort;
using testing::decode;
using ::testing::ElementsAre;
using testing::host_of;
using testing::ids;
using ::testing::IsEmpty;
using testing::parked_best_effort;
using testing::prompt;
using testing::Scene;
using testing::with_residents;

// Products take 1 ms for any number of rows, 0.1 ms a layer, so that lanes double a step; the
// host attends for a sequence of 60 tokens in 0.019 ms.
class RightForm : public ::testing::Test {
 protected:
  RightForm() { make_machine(1, 1); }
  // Products and the host's attention take `times` times their times above.
  void make_machine(double times, double resident_per_context_nanos, double head_per_row = 0) {
    latency::ModularCosts costs;
    costs.layers = 10;
    costs.head = latency::Ladder::through({{1, head_per_row}, {400, 400 * head_per_row}}).value();
    costs.dense = latency::Ladder::through({{1, 1e6 * times}, {4000, 1.001e6 * times}}).value();
    costs.decode.per_context = resident_per_context_nanos;
    flat_.emplace(
        std::make_unique<latency::ModularModel>(latency::ModularModel::create(costs).value()));
    host_ = host_of(320 * times);
  }
  // The link takes this part of each lane's window.
  void make_link(double nanos) {
    host_.to_host = {.alpha_nanos = nanos, .beta_nanos = 0};
    host_.hop = {.to_host = 1, .from_host = 0};
  }
  std::unique_ptr<NeoPolicy> made(const NeoRules& rules) {
    const PolicyDescriptor& descriptor = rules.join == HostJoin::kByNeo ? kNeoPlus : kApexPlus;
    return std::make_unique<NeoPolicy>(rules, descriptor,
                                       Beliefs{.step_times = &*flat_, .host_times = &host_});
  }
  // Two residents; no room for more.
  static Scene scene_of(int64_t offloaded) {
    Scene scene{.running = {best_effort(decode(1, 60)), best_effort(decode(2, 60))},
                .offloaded = parked_best_effort(offloaded, 60, 101)};
    scene.budget.free_blocks = 2;
    scene.budget.staging_blocks = 200;
    return scene;
  }

  // Two residents and 160 sequences on the host, with 6 tokens each.
  static Scene scene_of_short_sequences() {
    Scene scene{.running = {decode(1, 6), decode(2, 6)},
                .offloaded = parked_best_effort(160, 6, 101)};
    scene.budget.free_blocks = 2;
    scene.budget.logit_rows = 400;
    return scene;
  }

  latency::HostTimes host_;

 private:
  std::optional<latency::CorrectedModel> flat_;
};

// Ten of the host's tokens hide in lanes: 12 tokens in 2 ms. By overlap each of 60 makes one of 11
// hops, all but a tenth in time: some 6.8 tokens in 1 ms, of which two are the residents'. At the
// rate of the residents alone, two tokens in 1 ms, the longer step would seem better.
TEST_F(RightForm, OverlapWhereItGivesMorePerTimeThanLanes) {
  EXPECT_EQ(made(testing::kPlus)->plan(scene_of(60).view()).mode, StepMode::kGroups);
  EXPECT_EQ(made(testing::kPlus)->plan(scene_of(12).view()).mode, StepMode::kLanes);
}

TEST_F(RightForm, AFormMayBeForced) {
  NeoRules overlap = testing::kPlus;
  overlap.only_form = StepForm::kOverlapped;
  NeoRules lanes = testing::kPlus;
  lanes.only_form = StepForm::kTwoLanes;
  const StepPlan joined = made(overlap)->plan(scene_of(12).view());
  EXPECT_EQ(joined.mode, StepMode::kGroups);
  EXPECT_EQ(joined.second_lane.size(), 12U);
  EXPECT_EQ(made(lanes)->plan(scene_of(60).view()).mode, StepMode::kLanes);
  EXPECT_EQ(made(lanes)->plan(scene_of(0).view()).mode, StepMode::kGroups);
}

// Twelve sequences keep the host busy in lanes. With some fifty more overlap would give more, and
// it is not to be had unless their prompts are computed; with one more it would not.
TEST_F(RightForm, PromptsOfABusyHostBeginIfOverlapOfAllWouldGiveMoreThanLanes) {
  const auto begun = [&](int64_t waiting) {
    Scene scene = scene_of(12);
    const std::unique_ptr<NeoPolicy> policy = made(testing::kPlus);
    EXPECT_EQ(policy->plan(scene.view()).mode, StepMode::kLanes);
    for (int64_t i = 0; i < waiting; ++i) {
      scene.waiting.push_back(best_effort(prompt(301 + i, 60)));
    }
    return policy->plan(scene.view()).straight_to_host.size();
  };
  EXPECT_GT(begun(60), 0U);
  EXPECT_EQ(begun(1), 0U);
}

// On a slow host a token that begins is under way for many steps, in which its sequence cannot
// return: the accelerator would be idle when the resident that is on its way has ended.
TEST_F(RightForm, NoTokenBeginsWhileTheAcceleratorIsEmptyAndASequenceReturns) {
  for (const NeoRules& rules : {testing::kPlus, testing::kNeoPlusRules}) {
    Scene scene = scene_of(3);
    scene.running.clear();
    scene.budget.free_blocks = scene.budget.total_blocks = 24;
    scene.budget.sequences = 1;
    const StepPlan plan = made(rules)->plan(scene.view());
    EXPECT_THAT(ids(plan.onload), ElementsAre(101));
    EXPECT_THAT(ids(plan.hold), ElementsAre(102, 103));
    scene.budget.free_blocks = 1;  // none can return
    const StepPlan apart = made(rules)->plan(scene.view());
    EXPECT_THAT(apart.hold, IsEmpty());
    EXPECT_EQ(apart.mode, StepMode::kLanes);
  }
}

// Both are bound for the host, and the first lane has more than 128 rows with one of them, for
// which the published rules leave the other one out. A step takes the same time with both.
TEST_F(RightForm, PromptsStayInAStepThatMostlyReadsTheWeights) {
  Scene scene = scene_of(0);
  scene.waiting = {best_effort(prompt(21, 140)), best_effort(prompt(22, 140))};
  EXPECT_THAT(ids(made(testing::kNeoPlusRules)->plan(scene.view()).straight_to_host),
              ElementsAre(21, 22));
}

// A lane has 0.1 ms in each layer, and the link takes 5 us of this time. In 1 ms the host gives 50
// tokens and the accelerator two, so the accelerator waits for some tokens that do not hide.
TEST_F(RightForm, TheAcceleratorWaitsForTokensThatAreWorthTheTime) {
  make_link(5000);
  const auto joining = [&](const NeoRules& rules, Nanos first_token_due, Nanos tpot) {
    Scene scene = scene_of_short_sequences();
    scene.running[0].tpot = tpot;
    if (first_token_due < Nanos::max()) {
      scene.waiting = {prompt(21, 600)};  // finds no room
      scene.waiting[0].first_token_due = first_token_due;
    }
    const StepPlan plan = made(rules)->plan(scene.view());
    EXPECT_EQ(plan.mode, StepMode::kLanes);
    return 160 - std::ssize(plan.hold);
  };
  const Nanos never = Nanos::max();
  NeoRules published = testing::kNeoPlusRules;
  published.repaired = false;
  for (const NeoRules& rules : {testing::kNeoPlusRules, testing::kPlus}) {
    const int64_t waiting = joining(rules, never, never);
    const int64_t hidden = joining(rules, std::chrono::seconds(9), never);
    EXPECT_EQ(hidden, 98) << "95 us in each lane, while a first token has a target";
    EXPECT_EQ(waiting, 104) << "3 % of 0.2 ms in each lane";
    EXPECT_EQ(joining(rules, never, std::chrono::microseconds(2010)), hidden);
  }
  EXPECT_EQ(joining(published, never, never), 98);
}

// The last stage takes 5 us for each row, so 0.81 ms for all that could join. The target leaves
// each layer 0.208 ms, and 0.206 ms are needed. Counted twice, tokens that have been placed would
// leave 0.16 ms.
TEST_F(RightForm, ATargetLeavesTimeForTheLastStageOfEachTokenOnce) {
  make_machine(1, 1, 5000);
  make_link(5000);
  for (const NeoRules& rules : {testing::kNeoPlusRules, testing::kPlus}) {
    Scene scene = scene_of_short_sequences();
    scene.running[0].tpot = std::chrono::microseconds(2890);
    const StepPlan plan = made(rules)->plan(scene.view());
    EXPECT_EQ(plan.mode, StepMode::kLanes);
    EXPECT_EQ(160 - std::ssize(plan.hold), 104);
  }
}

// A step with lanes may take a second, or twice the step without lanes if that is more: 1.212 s
// here. The step takes 1.206 s with the tokens that hide, and further tokens would take more than
// the rest.
TEST_F(RightForm, AStepThatWaitingWouldMakeTooLongForLanesDoesNotWait) {
  make_machine(600, 5e4);
  make_link(3e6);
  Scene scene = scene_of_short_sequences();
  for (const NeoRules& rules : {testing::kNeoPlusRules, testing::kPlus}) {
    const StepPlan plan = made(rules)->plan(scene.view());
    EXPECT_EQ(plan.mode, StepMode::kLanes);
    EXPECT_EQ(160 - std::ssize(plan.hold), 98);
  }
}

// ---------------------------------------------------------------- beside prompts

class BesidePrompts : public testing::NeoScene {};

// The decodes of the accelerator leave the host no time for one sequence more than its eleven. A
// prompt of five tokens adds next to nothing, one of 200 in each step 2 ms a layer.
class BesideLanes : public BesidePrompts {
 protected:
  // The plan after a step with lanes.
  StepPlan planned_with(const SequenceView& waiting, int64_t offloaded, Nanos tpot = Nanos::max()) {
    Scene scene = with_residents(parked_best_effort(11, 100, 101));
    for (SequenceView& sequence : scene.running) {
      sequence.service_class =
          tpot < Nanos::max() ? ServiceClass::kLatencySensitive : ServiceClass::kBestEffort;
      sequence.tpot = tpot;
    }
    scene.running.back().service_class = ServiceClass::kBestEffort;
    scene.budget.staging_blocks = 100;
    NeoPolicy& policy = made_neo_plus(1000);
    EXPECT_EQ(policy.plan(scene.view()).mode, StepMode::kLanes);
    scene.offloaded = parked_best_effort(offloaded, 100, 101);
    scene.waiting = {best_effort(waiting)};
    return policy.plan(scene.view());
  }
};

TEST_F(BesideLanes, APromptBeginsIfTheHostKeepsUpInStepsThatHaveSuchPrompts) {
  EXPECT_THAT(planned_with(prompt(21, 5), 11).straight_to_host, IsEmpty());
  EXPECT_THAT(ids(planned_with(prompt(21, 200), 11).straight_to_host), ElementsAre(21));
  EXPECT_THAT(planned_with(prompt(21, 200), 40).straight_to_host, IsEmpty());
}

// Steps may take 8 ms, a step of the decodes takes some 3.7: each of the four layers has 1.1 ms for
// prompts.
TEST_F(BesideLanes, TheHostHasNoMoreTimeThanATargetLeavesForPrompts) {
  const Nanos tpot = std::chrono::milliseconds(8);
  const StepPlan plan = planned_with(prompt(21, 400), 25, tpot);
  EXPECT_THAT(plan.straight_to_host, IsEmpty());
  EXPECT_THAT(plan.offload, IsEmpty()) << "no sequence leaves to make room for it";
  EXPECT_THAT(ids(planned_with(prompt(21, 400), 25).straight_to_host), ElementsAre(21));
}

// With a prompt of 400 tokens in each step the host has 4.9 ms.
TEST_F(BesidePrompts, TheHostIsNotTakenForLateWhileStepsHavePrompts) {
  Scene scene = with_residents(parked_best_effort(11, 100, 101));
  scene.budget.staging_blocks = 100;
  Scene waits = scene;
  waits.waiting = {best_effort(prompt(21, 5))};
  NeoPolicy& policy = made_neo_plus(1000);
  Scene busy = scene;
  busy.running.push_back(prompt(31, 400));
  busy.budget.free_blocks = 60;
  SystemView view = busy.view();
  for (view.step = 1; view.step < 100; ++view.step) {
    policy.plan(view);
  }
  view = waits.view();
  view.step = 100;
  EXPECT_THAT(ids(policy.plan(view).straight_to_host), ElementsAre(21));
}

// The same, but the time of a step grows with its rows.
TEST_F(BesidePrompts, APromptLeavesAStepThatIsLongWithoutIt) {
  Scene scene = with_residents(parked_best_effort(4, 20, 101));
  scene.budget.staging_blocks = 100;
  scene.waiting = {best_effort(prompt(21, 200)), best_effort(prompt(22, 200))};
  EXPECT_THAT(ids(made_neo_plus(50).plan(scene.view()).straight_to_host), ElementsAre(21));
}

// A step has nine slices. Eight decode, the prompt that goes straight to the host is bound last.
TEST_F(BesidePrompts, NoChunkTakesTheSliceOfAPromptThatGoesStraightToTheHost) {
  Scene scene = with_residents({});
  scene.budget.tokens = 128;
  scene.budget.logit_rows = 9;
  scene.budget.free_blocks = 4;
  scene.budget.staging_blocks = 100;
  scene.waiting = {best_effort(prompt(21, 100)), best_effort(prompt(22, 30))};
  const StepPlan plan = made_neo_plus(50).plan(scene.view());
  EXPECT_THAT(ids(plan.straight_to_host), ElementsAre(21));
  EXPECT_THAT(ids(plan.admit), ElementsAre(21));
  scene.budget.logit_rows = 10;
  EXPECT_THAT(ids(made_neo_plus(50).plan(scene.view()).admit), ElementsAre(21, 22));
}

TEST_F(BesidePrompts, APromptWaitsForAPlaceAndDoesNotGoToTheHostForWantOfIt) {
  Scene scene = with_residents({});
  scene.budget.free_blocks = 60;
  scene.budget.sequences = 0;
  scene.budget.staging_blocks = 100;
  scene.waiting = {best_effort(prompt(21, 200))};
  EXPECT_THAT(made_neo_plus(50).plan(scene.view()).admit, IsEmpty());
}

// Both fit the 480 rows of a step, and leave 32 for 100 tokens of the host that have time.
TEST_F(BesidePrompts, InLanesASecondPromptLeavesTheRowsOfTokensThatHide) {
  Scene scene = with_residents(parked_best_effort(100, 20, 101));
  scene.budget.tokens = 480;
  scene.budget.logit_rows = 200;
  scene.budget.staging_blocks = 100;
  NeoPolicy& policy = made_neo_plus(50);
  SystemView view = scene.view();
  view.step = 1;
  EXPECT_EQ(policy.plan(view).mode, StepMode::kLanes);
  scene.waiting = {best_effort(prompt(21, 200)), best_effort(prompt(22, 240))};
  view = scene.view();
  view.step = 2;
  const StepPlan plan = policy.plan(view);
  EXPECT_THAT(ids(plan.straight_to_host), ElementsAre(21));
  EXPECT_THAT(ids(plan.admit), ElementsAre(21)) << "and 22 is not cut, but waits to go straight";
  EXPECT_EQ(plan.mode, StepMode::kLanes);
  EXPECT_THAT(plan.hold, IsEmpty());
}

}  // namespace
}  // namespace tandem
