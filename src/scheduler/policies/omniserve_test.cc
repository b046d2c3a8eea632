#include "scheduler/policies/omniserve.h"
#include "scheduler/pace.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "latency/modular_model.h"

namespace tandem {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// 2 ms a step, 0.1 ms a row at four layers together.
const latency::ModularModel& model() {
  static const latency::ModularModel times = latency::simple_model(
      {.layers = 4, .fixed = milliseconds(2), .per_row = std::chrono::microseconds(100)});
  return times;
}

// Steps are to be no longer than `pace`.
SequenceView decode(int64_t id, ServiceClass service_class, Nanos pace = Nanos::max()) {
  return {.id = SequenceId{id},
          .state = SequenceState::kDecoding,
          .service_class = service_class,
          .tpot = pace == Nanos::max() ? pace : pace * kPaceReserve / (kPaceReserve - 1),
          .known_tokens = 20,
          .computed_tokens = 19,
          .held_blocks = 2,
          .own_blocks = 2,
          .transfer_blocks = 2};
}

SequenceView prompt(int64_t id, ServiceClass service_class, int32_t tokens,
                    Nanos due = Nanos::max()) {
  return {.id = SequenceId{id},
          .service_class = service_class,
          .first_token_due = due,
          .known_tokens = tokens};
}

SequenceView on_the_host(int64_t id, SequenceState state) {
  SequenceView view = decode(id, kBe);
  view.state = state;
  view.tier = Tier::kHost;
  return view;
}

struct Stage {
  std::vector<SequenceView> running{};
  std::vector<SequenceView> offloaded{};
  std::vector<SequenceView> waiting{};
  std::vector<AdmittedPrompt> later{};
  int32_t places = 64;
  int64_t free_blocks = 900;
  int64_t step = 1;
  int64_t host_blocks = 100;
  int64_t ready = -1;
  Nanos now{0};
};

StepPlan plan_of(OmniServePolicy& policy, const Stage& stage) {
  SystemView view;
  view.step = stage.step;
  view.running = stage.running;
  view.offloaded = stage.offloaded;
  view.waiting = stage.waiting;
  view.later = stage.later;
  view.ready = stage.ready;
  view.now = stage.now;
  view.budget = {.tokens = 512,
                 .logit_rows = 64,
                 .sequences = stage.places,
                 .free_blocks = stage.free_blocks,
                 .total_blocks = 1000,
                 .host_free_blocks = stage.host_blocks,
                 .host_total_blocks = stage.host_blocks,
                 .block_tokens = 16};
  return policy.plan(view);
}

StepPlan plan_of(const Stage& stage) {
  OmniServePolicy policy({}, model());
  return plan_of(policy, stage);
}

int32_t tokens_of(const StepPlan& plan, int64_t id) {
  for (const StepPlan::Slice& slice : plan.slices) {
    if (slice.sequence == SequenceId{id}) {
      return slice.tokens;
    }
  }
  return 0;
}

TEST(OmniServe, DecodesOfTheFirstClassRunWhateverTheModelSays) {
  Stage stage;
  for (int64_t id = 1; id <= 40; ++id) {
    stage.running.push_back(decode(id, kLs, milliseconds(3)));  // ten would fit
  }
  EXPECT_EQ(plan_of(stage).slices.size(), 40U);
}

TEST(OmniServe, ChunksFillTheStepUpToTheSmallestTarget) {
  const StepPlan plan =
      plan_of({.running = {decode(1, kLs, milliseconds(10)), decode(2, kLs, milliseconds(30))},
               .waiting = {prompt(3, kLs, 400)}});
  EXPECT_EQ(tokens_of(plan, 3), 78);
}

TEST(OmniServe, ATargetThatNobodyCanKeepDoesNotSlowDownTheOthers) {
  const StepPlan plan =
      plan_of({.running = {decode(1, kLs, Nanos{1000}), decode(2, kLs, milliseconds(10))},
               .waiting = {prompt(3, kLs, 400)}});
  EXPECT_EQ(tokens_of(plan, 3), 78);
}

TEST(OmniServe, AnAdmittedPromptGetsATileWhereNothingFits) {
  SequenceView begun = prompt(3, kLs, 400);
  begun.state = SequenceState::kPrefilling;
  Stage stage{.running = {begun}};
  for (int64_t id = 10; id < 50; ++id) {
    stage.running.push_back(decode(id, kLs, milliseconds(3)));
  }
  EXPECT_EQ(tokens_of(plan_of(stage), 3), 16);
}

TEST(OmniServe, BestEffortPromptsLeaveOmegaWhereResultsWait) {
  Stage stage{.running = {decode(1, kLs, milliseconds(10))}, .waiting = {prompt(3, kBe, 400)}};
  EXPECT_EQ(tokens_of(plan_of(stage), 3), 79);
  // Ten results, spread over five stages: eight visits of 0.025 ms and two rows of logits.
  for (int64_t id = 20; id < 30; ++id) {
    stage.offloaded.push_back(on_the_host(id, SequenceState::kParkedInFlight));
  }
  EXPECT_EQ(tokens_of(plan_of(stage), 3), 77);
  // And a latency-sensitive one does not.
  stage.waiting = {prompt(3, kLs, 400)};
  EXPECT_EQ(tokens_of(plan_of(stage), 3), 79);
}

// Tiles of 32 rows: what results that wait add depends on where in its tile the step ends.
TEST(OmniServe, TheTimeOfResultsThatWaitIsThatBesideTheWholeStep) {
  latency::ModularCosts costs;
  costs.layers = 4;
  costs.dense = *latency::Ladder::through(
      {{1, 2e6}, {32, 2e6}, {33, 4e6}, {64, 4e6}, {65, 6e6}, {96, 6e6}, {97, 8e6}, {128, 8e6}});
  costs.head = *latency::Ladder::through({{1, 1}, {512, 1}});
  const latency::ModularModel tiles = *latency::ModularModel::create(costs);
  OmniServePolicy policy({}, tiles);
  Stage stage{.running = {decode(1, kLs, microseconds(6500))},
              .waiting = {prompt(3, kBe, 400)},
              .ready = 0};
  EXPECT_EQ(tokens_of(plan_of(policy, stage), 3), 95);
  stage.ready = 20;  // four at each stage
  EXPECT_EQ(tokens_of(plan_of(policy, stage), 3), 91);
}

TEST(OmniServe, BestEffortDecodesGoBeforeItsPromptsUnlessAsPublished) {
  const Stage stage{.running = {decode(1, kLs, milliseconds(10)), decode(2, kBe), decode(4, kBe)},
                    .waiting = {prompt(3, kBe, 400)}};
  const StepPlan plan = plan_of(stage);
  EXPECT_EQ(tokens_of(plan, 2) + tokens_of(plan, 4), 2);
  EXPECT_EQ(tokens_of(plan, 3), 77);
  OmniServePolicy published({.published_best_effort = true}, model());
  const StepPlan other = plan_of(published, stage);
  EXPECT_EQ(tokens_of(other, 2) + tokens_of(other, 4), 0);
  EXPECT_EQ(tokens_of(other, 3), 79);
}

// A prompt that decodes leave no time is not passed over for ever.
TEST(OmniServe, AnOverdueBestEffortPromptGoesBeforeDecodes) {
  OmniServePolicy policy({.offload_below = 0, .patience_steps = 8}, model());
  Stage stage{.running = {decode(1, kLs, microseconds(2250)), decode(2, kBe)},
              .waiting = {prompt(3, kBe, 400)},
              .host_blocks = 0};
  for (stage.step = 1; stage.step <= 8; ++stage.step) {
    EXPECT_EQ(tokens_of(plan_of(policy, stage), 2), 1) << stage.step;
    EXPECT_EQ(tokens_of(plan_of(policy, stage), 3), 0) << stage.step;
  }
  EXPECT_EQ(tokens_of(plan_of(policy, stage), 3), 16);
}

TEST(OmniServe, BestEffortPromptsKeepToTheTokenBudgetUnlessAsPublished) {
  const std::vector<SequenceView> running{decode(1, kLs, milliseconds(30))};
  const auto tokens = [&](ServiceClass service_class, bool as_published) {
    OmniServePolicy policy({.token_budget = 100, .published_best_effort = as_published}, model());
    return tokens_of(
        plan_of(policy, {.running = running, .waiting = {prompt(3, service_class, 400)}}), 3);
  };
  EXPECT_EQ(tokens(kBe, false), 99);
  EXPECT_EQ(tokens(kBe, true), 279);
  EXPECT_EQ(tokens(kLs, false), 279);
}

TEST(OmniServe, WhoIsLateMakesTheNextStepShorterButNotByMoreThanHalf) {
  SequenceView late = decode(1, kLs, milliseconds(10));
  Stage stage{.running = {late}, .waiting = {prompt(3, kBe, 400)}};
  const auto rows_when_due_in = [&](Nanos due) {
    // Ten tokens' worth of the reserve lie between what is planned and the target.
    stage.running[0].first_token = Nanos{0};
    stage.running[0].next_token_due = 10 * late.tpot;
    stage.now = pace_of(10 * late.tpot) - due;
    return tokens_of(plan_of(stage), 3);
  };
  EXPECT_EQ(rows_when_due_in(milliseconds(30)), 79);  // early ones make it no longer
  EXPECT_EQ(rows_when_due_in(milliseconds(8)), 59);
  EXPECT_EQ(rows_when_due_in(milliseconds(-30)), 29);
}

TEST(OmniServe, TheViewTellsHowManyResultsWaited) {
  Stage stage{
      .running = {decode(1, kLs, milliseconds(10))}, .waiting = {prompt(3, kBe, 400)}, .ready = 20};
  EXPECT_EQ(tokens_of(plan_of(stage), 3), 75);
  stage.ready = 0;
  EXPECT_EQ(tokens_of(plan_of(stage), 3), 79);
}

TEST(OmniServe, BestEffortLeavesAWaitingPromptTimeForItsFirstToken) {
  // 158 rows are left of the prompt after this step's 79: two more steps of 10 ms.
  Stage stage{.running = {decode(1, kLs, milliseconds(10))},
              .waiting = {prompt(2, kLs, 60, milliseconds(8)), prompt(3, kBe, 400)}};
  // 2 ms + 61 rows take 8.1 ms: the prompt is late already, nobody makes it later.
  EXPECT_EQ(tokens_of(plan_of(stage), 3), 0);
  // A tenth of the target is kept: 9 ms.
  stage.waiting[0].first_token_due = milliseconds(10);
  EXPECT_EQ(tokens_of(plan_of(stage), 3), 9);
  stage.waiting[0].first_token_due = Nanos::max();
  EXPECT_EQ(tokens_of(plan_of(stage), 3), 19);
}

// A promised line waits for places, and for blocks: what can begin in the next step finds its room.
TEST(OmniServe, APromisedLineFindsItsRoomAStepAhead) {
  Stage stage{.waiting = {prompt(2, kLs, 10, milliseconds(100))}, .places = 0, .host_blocks = 0};
  for (int64_t id = 10; id < 20; ++id) {
    stage.running.push_back(decode(id, kBe));
  }
  stage.later.assign(3, {.first_token_due = milliseconds(200), .rest = {.pending_tokens = 30}});
  EXPECT_EQ(plan_of(stage).preempt.size(), 4U);
  stage.later.assign(3, {.rest = {.pending_tokens = 30}});  // nothing was promised to these
  EXPECT_EQ(plan_of(stage).preempt.size(), 1U);

  // The first has its block; the others need six, and the first one more; each decode frees two.
  stage.places = 64;
  stage.free_blocks = 1;
  EXPECT_EQ(plan_of(stage).preempt.size(), 0U);
  stage.later.assign(3, {.first_token_due = milliseconds(200), .rest = {.pending_tokens = 30}});
  const StepPlan plan = plan_of(stage);
  EXPECT_EQ(plan.admit, std::vector<SequenceId>{SequenceId{2}});
  EXPECT_EQ(plan.preempt.size(), 4U);
}

TEST(OmniServe, BestEffortDecodesWithoutTimeGoToTheHostAfterAWhile) {
  OmniServePolicy policy({.offload_below = 0}, model());
  Stage stage{.running = {decode(1, kLs, milliseconds(2) + std::chrono::microseconds(250)),
                          decode(2, kBe), decode(3, kBe)}};
  StepPlan plan = plan_of(policy, stage);
  EXPECT_EQ(tokens_of(plan, 2), 1);  // one fits
  EXPECT_EQ(tokens_of(plan, 3), 0);
  EXPECT_TRUE(plan.offload.empty());
  stage.step = 5;
  EXPECT_EQ(plan_of(policy, stage).offload, std::vector<SequenceId>{SequenceId{3}});
}

TEST(OmniServe, WithoutAHostABestEffortDecodeWaitsNoLongerThanItsPatience) {
  OmniServePolicy policy({.offload_below = 0, .patience_steps = 8}, model());
  Stage stage{.running = {decode(1, kLs, std::chrono::microseconds(2150)), decode(2, kBe)},
              .host_blocks = 0};
  for (stage.step = 1; stage.step <= 8; ++stage.step) {
    EXPECT_EQ(tokens_of(plan_of(policy, stage), 2), 0) << stage.step;
  }
  EXPECT_EQ(tokens_of(plan_of(policy, stage), 2), 1);
}

TEST(OmniServe, WhoWasOffloadedComesBackOnlyAfterTimeHasBeenLeftOver) {
  OmniServePolicy policy({.offload_below = 0, .onload_above = 50}, model());
  Stage stage{.running = {decode(1, kLs, milliseconds(10))},
              .offloaded = {on_the_host(2, SequenceState::kParkedWaiting),
                            on_the_host(3, SequenceState::kParkedWaiting)}};
  for (stage.step = 1; stage.step <= 16; ++stage.step) {
    EXPECT_TRUE(plan_of(policy, stage).onload.empty()) << stage.step;
  }
  EXPECT_EQ(plan_of(policy, stage).onload, std::vector<SequenceId>{SequenceId{2}});
}

TEST(OmniServe, NobodyIsLeftWithoutAStepWhereNothingElseRuns) {
  OmniServePolicy policy({}, model());
  const Nanos shortest = microseconds(2100);  // a decode
  EXPECT_EQ(plan_of(policy, {.running = {decode(1, kLs, shortest)}}).slices.size(), 1U);
  // The limit of the last one still holds, and is too short for anything else.
  EXPECT_EQ(tokens_of(plan_of(policy, {.running = {decode(2, kBe)}, .step = 2}), 2), 1);
  EXPECT_EQ(tokens_of(plan_of(policy, {.waiting = {prompt(3, kBe, 100)}, .step = 3}), 3), 16);
}

TEST(OmniServe, ATargetThatAnIdleServerCannotKeepLimitsNothingAndIsForgotten) {
  OmniServePolicy policy({}, model());
  const std::vector<SequenceView> impossible{decode(1, kLs, Nanos{1000})};
  EXPECT_EQ(
      tokens_of(plan_of(policy, {.running = impossible, .waiting = {prompt(3, kBe, 400)}}), 3),
      400);
  EXPECT_EQ(tokens_of(plan_of(policy, {.waiting = {prompt(4, kBe, 400)}, .step = 2}), 4), 400);
}

// Forty decodes take 6 ms: they are as little late as can be, and later steps are not held to that.
TEST(OmniServe, TargetsThatTheLoadMakesImpossibleKeepStepsShortWhileItLasts) {
  OmniServePolicy policy({}, model());
  Stage stage{.waiting = {prompt(3, kBe, 400)}};
  for (int64_t id = 10; id < 50; ++id) {
    stage.running.push_back(decode(id, kLs, milliseconds(3)));
  }
  EXPECT_EQ(tokens_of(plan_of(policy, stage), 3), 0);
  EXPECT_EQ(tokens_of(plan_of(policy, {.waiting = {prompt(4, kBe, 400)}, .step = 2}), 4), 400);
}

// Offloads of each of `count` steps in which few blocks are free, beside one large context on a
// host that takes 1 us for each token.
std::vector<size_t> offloads_of_steps(int count, const latency::HostTimes* host,
                                      int32_t context_tokens) {
  OmniServePolicy policy({.offload_below = 25, .onload_above = 50, .host_limit_steps = 2}, model(),
                         host);
  Stage stage{.running = {decode(1, kBe)}, .free_blocks = 100};
  stage.running.front().own_blocks = 0;
  stage.offloaded.push_back(on_the_host(20, SequenceState::kParkedInFlight));
  stage.offloaded.front().known_tokens = context_tokens;
  std::vector<size_t> offloads;
  for (int i = 0; i < count; ++i) {
    offloads.push_back(plan_of(policy, stage).offload.size());
    ++stage.step;
  }
  return offloads;
}

TEST(OmniServe, BestEffortStaysWhileTheHostIsTheLimit) {
  latency::HostTimes host;
  host.attention.per_context_nanos = 1000;
  EXPECT_EQ(offloads_of_steps(4, &host, 5000), (std::vector<size_t>{1, 1, 0, 0}));
  EXPECT_EQ(offloads_of_steps(4, &host, 500), (std::vector<size_t>{1, 1, 1, 1}));
  EXPECT_EQ(offloads_of_steps(4, nullptr, 5000), (std::vector<size_t>{1, 1, 1, 1}));
}

TEST(OmniServe, BestEffortPromptsAreNotWrittenThroughWhileTheHostIsTheLimit) {
  latency::HostTimes host;
  host.attention.per_context_nanos = 1000;
  for (const latency::HostTimes* believed : {static_cast<const latency::HostTimes*>(nullptr),
                                             static_cast<const latency::HostTimes*>(&host)}) {
    OmniServePolicy policy({.host_limit_steps = 1}, model(), believed);
    SequenceView begun = prompt(3, kBe, 400);
    begun.state = SequenceState::kPrefilling;
    begun.computed_tokens = 100;
    Stage stage{.running = {begun}};
    stage.offloaded.push_back(on_the_host(20, SequenceState::kParkedInFlight));
    stage.offloaded.front().known_tokens = 100'000;
    EXPECT_EQ(plan_of(policy, stage).write_through.size(), 1U);
    ++stage.step;
    EXPECT_EQ(plan_of(policy, stage).write_through.size(), believed == nullptr ? 1U : 0U);
  }
}

}  // namespace
}  // namespace tandem
