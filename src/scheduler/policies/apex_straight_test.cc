// Prompts that go straight to the host under APEX.
#include "scheduler/policies/apex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "scheduler/policies/neo.h"
#include "support/apex_scene.h"

namespace tandem {
namespace {

using testing::decode;
using ::testing::ElementsAre;
using testing::ids;
using ::testing::IsEmpty;
using testing::kPlus;
using testing::kPublished;
using testing::prompt;
using testing::Scene;
using testing::under_way;
using testing::with_residents;

using ApexStraight = testing::ApexScene;

TEST_F(ApexStraight, OverStagingLayersOnlyThePromptWithoutRoomGoesStraightToTheHost) {
  Scene scene{.running = {decode(1, 160), decode(2, 160)},
              .waiting = {prompt(3, 100), prompt(4, 20), prompt(5, 100)}};
  scene.budget.total_blocks = 25;
  scene.budget.free_blocks = 5;
  scene.budget.staging_blocks = 32;
  const StepPlan plan = made(1000, kPublished).plan(scene.view());
  EXPECT_THAT(plan.offload, IsEmpty());
  EXPECT_THAT(ids(plan.admit), ::testing::UnorderedElementsAre(3, 4, 5));
  EXPECT_THAT(ids(plan.straight_to_host), ElementsAre(3, 5)) << "4 finds room";
}

TEST_F(ApexStraight, APromptThatFitsDoesNotGoStraightToTheHost) {
  for (const NeoRules& rules : {kPublished, kPlus}) {
    Scene scene{.running = {decode(1, 20)}, .waiting = {prompt(2, 100)}};
    scene.budget.staging_blocks = 32;
    scene.waiting[0].service_class = ServiceClass::kBestEffort;
    const StepPlan plan = made(10, rules).plan(scene.view());
    EXPECT_THAT(ids(plan.admit), ElementsAre(2));
    EXPECT_THAT(plan.straight_to_host, IsEmpty());
  }
}

TEST_F(ApexStraight, APromptThatFindsBlocksAndNoPlaceWaits) {
  for (const NeoRules& rules : {kPublished, kPlus}) {
    Scene scene{.running = {decode(1, 20)}, .waiting = {prompt(2, 100)}};
    scene.budget.staging_blocks = 32;
    scene.budget.sequences = 0;
    scene.waiting[0].service_class = ServiceClass::kBestEffort;
    EXPECT_THAT(made(10, rules).plan(scene.view()).admit, IsEmpty());
    scene.budget.free_blocks = 3;
    EXPECT_THAT(ids(made(10, rules).plan(scene.view()).straight_to_host), ElementsAre(2));
  }
}

TEST_F(ApexStraight, PlusLetsBestEffortWaitIfALatencySensitivePromptFindsNoPlace) {
  SequenceView online = decode(1, 20);
  online.service_class = ServiceClass::kLatencySensitive;
  SequenceView waiting = prompt(2, 100);
  waiting.service_class = ServiceClass::kLatencySensitive;
  SequenceView behind = prompt(3, 100);
  behind.service_class = ServiceClass::kBestEffort;
  Scene scene{.running = {online}, .waiting = {waiting, behind}};
  scene.budget.staging_blocks = 32;
  scene.budget.sequences = 0;
  const StepPlan plan = made(10, kPlus).plan(scene.view());
  EXPECT_THAT(plan.admit, IsEmpty());
  EXPECT_THAT(plan.straight_to_host, IsEmpty());
}

TEST_F(ApexStraight, APromptThatTheHostCannotHoldWaitsAndNoneBehindItBegins) {
  Scene scene{.running = {decode(1, 160)}, .waiting = {prompt(2, 100), prompt(3, 10)}};
  scene.budget.free_blocks = 3;
  scene.budget.staging_blocks = 32;
  scene.budget.host_free_blocks = 6;  // of 7
  EXPECT_THAT(made(1000, kPublished).plan(scene.view()).admit, IsEmpty());
  scene.budget.host_free_blocks = 7;
  const StepPlan plan = made(1000, kPublished).plan(scene.view());
  EXPECT_THAT(ids(plan.admit), ::testing::UnorderedElementsAre(2, 3));
  EXPECT_THAT(ids(plan.straight_to_host), ElementsAre(2));
}

TEST_F(ApexStraight, PlusSendsNoPromptStraightToAHostThatIsMeasuredToTakeLonger) {
  std::vector<SequenceView> offloaded;
  for (int64_t id = 11; id < 31; ++id) {
    offloaded.push_back(under_way(id, 400, 2));
  }
  Scene scene = with_residents(offloaded);
  scene.budget.free_blocks = 9;
  scene.budget.staging_blocks = 32;
  scene.waiting = {prompt(41, 200)};
  scene.waiting[0].service_class = ServiceClass::kBestEffort;
  for (SequenceView& sequence : scene.running) {
    sequence.service_class = ServiceClass::kBestEffort;
  }
  NeoRules overlap = kPlus;
  overlap.only_form = StepForm::kOverlapped;
  NeoPolicy& policy = made(375, overlap);  // believed to need 3 ms for a step of some 3.7 ms
  SystemView view = scene.view();
  view.step = 1;
  EXPECT_THAT(ids(policy.plan(view).straight_to_host), ElementsAre(41));
  view.step = 2;  // none has made a hop
  const StepPlan plan = policy.plan(view);
  EXPECT_THAT(plan.straight_to_host, IsEmpty());
  EXPECT_THAT(plan.admit, IsEmpty());
}

}  // namespace
}  // namespace tandem
