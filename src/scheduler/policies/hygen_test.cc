#include "scheduler/policies/hygen.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "latency/modular_model.h"
#include "scheduler/policies/registry.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

// A step takes 1 ms and 100 us for each row.
const latency::CorrectedModel& step_times() {
  static const latency::CorrectedModel model(std::make_unique<latency::ModularModel>(
      latency::simple_model({.layers = 2, .fixed = milliseconds(1), .per_row = Nanos{100'000}})));
  return model;
}

SequenceView decode(int64_t id, ServiceClass service_class, int32_t blocks = 2) {
  return {.id = SequenceId{id},
          .state = SequenceState::kDecoding,
          .service_class = service_class,
          .known_tokens = blocks * 16 + 1,
          .computed_tokens = blocks * 16,
          .held_blocks = blocks + 1,
          .own_blocks = blocks + 1,
          .transfer_blocks = blocks + 1};
}

SequenceView prompt(int64_t id, ServiceClass service_class, int32_t tokens) {
  return {.id = SequenceId{id}, .service_class = service_class, .known_tokens = tokens};
}

SequenceView begun(int64_t id, ServiceClass service_class, int32_t tokens, int32_t computed) {
  SequenceView view = prompt(id, service_class, tokens);
  view.state = SequenceState::kPrefilling;
  view.computed_tokens = computed;
  view.held_blocks = (computed + 15) / 16;
  view.own_blocks = view.held_blocks;
  return view;
}

struct Scene {
  std::vector<SequenceView> running{};
  std::vector<SequenceView> offloaded{};
  std::vector<SequenceView> waiting{};
  int64_t free_blocks = 1000;
  int64_t host_blocks = 0;
  int64_t ready = 0;
};

SystemView view_of(const Scene& scene) {
  SystemView view;
  view.running = scene.running;
  view.offloaded = scene.offloaded;
  view.waiting = scene.waiting;
  view.ready = scene.ready;
  view.budget = {.tokens = 1024,
                 .logit_rows = 64,
                 .sequences = 64,
                 .free_blocks = scene.free_blocks,
                 .total_blocks = 1000,
                 .host_free_blocks = scene.host_blocks,
                 .host_total_blocks = scene.host_blocks,
                 .block_tokens = 16};
  return view;
}

StepPlan plan_of(const Scene& scene, const HyGenOptions& options) {
  const bool timed = options.step_budget != Nanos::max();
  return HyGenPolicy(options, timed ? &step_times() : nullptr).plan(view_of(scene));
}

int32_t tokens_of(const StepPlan& plan, int64_t id) {
  for (const StepPlan::Slice& slice : plan.slices) {
    if (slice.sequence == SequenceId{id}) {
      return slice.tokens;
    }
  }
  return 0;
}

TEST(HyGen, OfflineTakesWhatOnlineLeavesOfTheTimeInTheOrderOfPhases) {
  const Scene scene{.running = {decode(1, kBe), decode(2, kLs), begun(3, kBe, 500, 100)},
                    .waiting = {prompt(4, kLs, 20), prompt(5, kBe, 500)}};
  // 1 ms + 1 decode + 20 rows of the prompt = 3.1 ms; 4 ms leave 9 rows, one for the decode.
  const StepPlan plan = plan_of(scene, {.step_budget = milliseconds(4)});
  EXPECT_EQ(tokens_of(plan, 2), 1);
  EXPECT_EQ(tokens_of(plan, 4), 20);
  EXPECT_EQ(tokens_of(plan, 1), 1);
  EXPECT_EQ(tokens_of(plan, 3), 8);
  EXPECT_EQ(tokens_of(plan, 5), 0);
}

TEST(HyGen, OnlineDecodesAndATileOfAnOnlinePromptGoInWhateverTheBudget) {
  Scene scene{.waiting = {prompt(99, kLs, 300)}};
  for (int64_t id = 1; id <= 30; ++id) {
    scene.running.push_back(decode(id, kLs));
  }
  scene.running.push_back(decode(40, kBe));
  const StepPlan plan = plan_of(scene, {.step_budget = milliseconds(3)});
  EXPECT_EQ(plan.slices.size(), 31U);
  EXPECT_EQ(tokens_of(plan, 99), 16);
  EXPECT_EQ(tokens_of(plan, 40), 0);
}

TEST(HyGen, ABudgetForOfflineOnlyLeavesOnlinePromptsToTheTokenBudget) {
  Scene scene{.running = {decode(1, kBe), decode(2, kLs), begun(3, kBe, 500, 100)},
              .waiting = {prompt(4, kLs, 300), prompt(5, kBe, 500)}};
  const HyGenOptions options{
      .step_budget = milliseconds(4), .budget_flex_only = true, .token_budget = 128};
  const StepPlan full = plan_of(scene, options);
  EXPECT_EQ(tokens_of(full, 2), 1);
  EXPECT_EQ(tokens_of(full, 4), 127);
  EXPECT_EQ(full.slices.size(), 2U);  // offline gets nothing
  EXPECT_EQ(full.step_budget, milliseconds(4));
  // 1 ms + 1 decode + 20 rows = 3.1 ms: offline gets the 9 rows up to 4 ms.
  scene.waiting[0] = prompt(4, kLs, 20);
  const StepPlan shared = plan_of(scene, options);
  EXPECT_EQ(tokens_of(shared, 4), 20);
  EXPECT_EQ(tokens_of(shared, 1), 1);
  EXPECT_EQ(tokens_of(shared, 3), 8);
}

TEST(HyGen, WhereNothingOnlineIsThereOfflineRunsWithinTheBudgetOldestFirst) {
  Scene scene;
  for (int64_t id = 1; id <= 30; ++id) {
    scene.running.push_back(decode(id, kBe));
  }
  const StepPlan plan = plan_of(scene, {.step_budget = milliseconds(3)});
  ASSERT_EQ(plan.slices.size(), 20U);
  EXPECT_EQ(tokens_of(plan, 1), 1);
  EXPECT_EQ(tokens_of(plan, 20), 1);
  EXPECT_EQ(tokens_of(plan, 21), 0);
}

TEST(HyGen, AStepWithNothingElseInItTakesAnOfflineTileWhateverTheBudget) {
  const StepPlan plan =
      plan_of({.waiting = {prompt(1, kBe, 300)}}, {.step_budget = Nanos{1'200'000}});
  EXPECT_EQ(tokens_of(plan, 1), 16);
}

TEST(HyGen, WithoutABudgetOfTimeTheTokenBudgetIsTheLimit) {
  const Scene scene{.running = {decode(1, kLs)}, .waiting = {prompt(2, kBe, 500)}};
  const StepPlan plan = plan_of(scene, {.token_budget = 100});
  EXPECT_EQ(tokens_of(plan, 2), 99);
}

// Alone: no other offline request runs; online requests may run.
TEST(HyGen, OfflineIsLetInUpToItsShareOfTheBlocksUnlessItIsAlone) {
  Scene scene{
      .running = {decode(1, kBe, 60)}, .waiting = {prompt(2, kBe, 16 * 50)}, .free_blocks = 939};
  const HyGenOptions options{.token_budget = 1024, .flex_blocks = 10};
  EXPECT_EQ(tokens_of(plan_of(scene, options), 2), 0);
  scene.running = {decode(1, kBe, 40)};
  scene.free_blocks = 959;
  EXPECT_EQ(tokens_of(plan_of(scene, options), 2), 800);
  // Two tables of 61 blocks that share nearly all of them.
  scene.running = {decode(1, kBe, 60), decode(3, kBe, 60)};
  scene.free_blocks = 960;
  EXPECT_EQ(tokens_of(plan_of(scene, options), 2), 800);
  scene = {.running = {decode(1, kLs)}, .waiting = {prompt(2, kBe, 16 * 500)}};
  EXPECT_GT(tokens_of(plan_of(scene, options), 2), 0);
}

TEST(HyGen, OnlineTakesItsBlocksFromTheNewestOfflineOne) {
  const Scene scene{.running = {decode(1, kLs), decode(2, kBe), decode(3, kBe)},
                    .waiting = {prompt(4, kLs, 16 * 3)},
                    .free_blocks = 1};
  const StepPlan plan = plan_of(scene, {.step_budget = milliseconds(50)});
  EXPECT_EQ(plan.preempt, std::vector<SequenceId>{SequenceId{3}});
  EXPECT_EQ(tokens_of(plan, 1), 1);
}

TEST(HyGen, WithAHostItGoesThereAndIsNotDropped) {
  const Scene scene{.running = {decode(1, kLs), decode(2, kBe), decode(3, kBe)},
                    .waiting = {prompt(4, kLs, 16 * 3)},
                    .free_blocks = 1,
                    .host_blocks = 100};
  const StepPlan plan =
      plan_of(scene, {.step_budget = milliseconds(50), .offload_below = 0, .onload_above = 100});
  EXPECT_TRUE(plan.preempt.empty());
  EXPECT_EQ(plan.offload, std::vector<SequenceId>{SequenceId{3}});
}

TEST(HyGen, ResultsOfTheHostHaveTheirTimeBeforeOfflinePrompts) {
  SequenceView parked = decode(9, kBe);
  parked.state = SequenceState::kParkedInFlight;
  parked.tier = Tier::kHost;
  Scene scene{.running = {decode(1, kLs)}, .offloaded = {parked}, .waiting = {prompt(2, kBe, 500)}};
  const HyGenOptions options{.step_budget = milliseconds(4), .onload_above = 100};
  const int32_t alone = tokens_of(plan_of(scene, options), 2);
  scene.ready = 30;  // at three stages
  const int32_t beside = tokens_of(plan_of(scene, options), 2);
  EXPECT_EQ(alone, 29);
  EXPECT_LT(beside, alone - 5);
  EXPECT_GT(beside, 0);
}

TEST(HyGen, APlanSaysWhichBudgetItKeptTo) {
  EXPECT_EQ(plan_of({.running = {decode(1, ServiceClass::kLatencySensitive)}},
                    {.step_budget = milliseconds(20)})
                .step_budget,
            milliseconds(20));
  EXPECT_EQ(plan_of({.running = {decode(1, ServiceClass::kLatencySensitive)}}, {}).step_budget,
            Nanos{0});
}

TEST(HyGen, TheBudgetFollowsItsGoal) {
  HyGenPolicy policy({.step_budget = milliseconds(10), .goals = {.mean_tbt = milliseconds(10)}},
                     &step_times());
  Scene scene{.running = {decode(1, kLs), decode(2, kBe)}, .waiting = {prompt(3, kBe, 500)}};
  SystemView view = view_of(scene);
  Nanos last = Nanos::max();
  int32_t chunk = 0;
  for (int step = 0; step < 2000; ++step) {
    view.now += milliseconds(20);
    ++scene.running[0].known_tokens;
    ++scene.running[0].computed_tokens;
    const StepPlan plan = policy.plan(view);
    EXPECT_LE(plan.step_budget, last);
    last = plan.step_budget;
    chunk = tokens_of(plan, 3);
  }
  EXPECT_EQ(last, std::chrono::microseconds(9'500));
  EXPECT_EQ(chunk, 83);  // 1 ms, and 100 us for each of 85 rows
}

TEST(HyGenStar, OfflineRequestsBeginAtTheRate) {
  HyGenPolicy policy({.flex_rate = 2000}, nullptr);  // two a second
  EXPECT_EQ(policy.name(), "hygen_star");
  Scene scene{.running = {decode(1, kLs)}, .waiting = {}};
  for (int64_t id = 2; id < 6; ++id) {
    scene.waiting.push_back(prompt(id, kBe, 20));
  }
  SystemView view = view_of(scene);
  std::vector<size_t> begun;
  for (int step = 0; step < 40; ++step) {
    view.now = milliseconds(100 * step);
    begun.push_back(policy.plan(view).admit.size());
  }
  EXPECT_EQ(begun[0], 1U);
  EXPECT_EQ(std::accumulate(begun.begin(), begun.end(), size_t{0}), 8U);
  EXPECT_LE(*std::ranges::max_element(begun), 1U);
}

TEST(HyGenStar, WhereNothingRunsOneBeginsAtOnce) {
  HyGenPolicy policy({.flex_rate = 1}, nullptr);
  const Scene scene{.waiting = {prompt(1, kBe, 20), prompt(2, kBe, 20)}};
  SystemView view = view_of(scene);
  for (int step = 0; step < 3; ++step) {
    view.now = milliseconds(step);
    EXPECT_EQ(policy.plan(view).admit.size(), 1U);
  }
}

TEST(HyGen, ABudgetBelowWhatADecodeTakesIsRefusedWithTheLeast) {
  PolicyOptions options;
  options[kHyGenStepBudget] = 900;
  const auto made = make_policy("hygen", options, {.step_times = &step_times()});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().param, "hygen-step-budget");
  EXPECT_NE(made.error().message.find("1100 us"), std::string::npos) << made.error().message;
}

}  // namespace
}  // namespace tandem
