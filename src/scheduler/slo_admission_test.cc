#include "scheduler/slo_admission.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "latency/modular_model.h"
#include "scheduler/pace.h"

namespace tandem {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// 2 ms a step, 0.1 ms a row.
const latency::ModularModel& admission_model() {
  static const latency::ModularModel times =
      latency::simple_model({.layers = 4, .fixed = milliseconds(2), .per_row = microseconds(100)});
  return times;
}

struct Stage {
  std::vector<AdmittedDecode> decodes{};
  std::vector<AdmittedPrompt> prompts{};
  int64_t running_prompts = 0;
  Nanos least_tpot = Nanos::max();
  int64_t version = 1;
};

AdmissionView view_of(const Stage& stage) {  // which must outlive it
  AdmissionView view;
  view.version = stage.version;
  view.decodes = stage.decodes;
  view.prompts = stage.prompts;
  view.running_prompts = stage.running_prompts;
  view.least_tpot = stage.least_tpot;
  view.places = 64;
  view.free_places = 64 - static_cast<int32_t>(stage.decodes.size());
  view.step_tokens = 512;
  view.total_blocks = 1000;
  view.free_blocks = 1000;
  view.block_tokens = 16;
  return view;
}

AdmissionAsk ask_for(int32_t tokens, Nanos ttft, Nanos tpot = Nanos::max()) {
  return {.ttft = ttft, .tpot = tpot, .prompt_tokens = tokens, .max_tokens = 20};
}

AdmittedPrompt waits(int32_t tokens, Nanos due = Nanos::max(), int32_t level = 0) {
  return {
      .level = level, .first_token_due = due, .rest = {.pending_tokens = tokens}, .max_tokens = 20};
}

struct Desk {
  explicit Desk(AdmissionRules rules = {}) : admission(rules, admission_model(), forecast, head) {}
  AdmissionVerdict decide(const Stage& stage, const AdmissionAsk& ask) {
    return admission.decide(view_of(stage), ask);
  }
  StepForecast forecast;
  OverdueHead head;
  SloAdmission admission;
};

TEST(SloAdmission, BestEffortAndWhoHasNoTargetsAreQueued) {
  Desk desk;
  AdmissionAsk ask = ask_for(400, milliseconds(1));
  ask.service_class = ServiceClass::kBestEffort;
  EXPECT_EQ(desk.decide({}, ask).answer, AdmissionAnswer::kQueue);
  EXPECT_EQ(desk.decide({}, ask_for(400, Nanos::max())).answer, AdmissionAnswer::kQueue);
}

TEST(SloAdmission, AFirstTokenInTimeIsPromisedWithItsForecast) {
  Desk desk;
  // 100 rows take 12 ms.
  const AdmissionVerdict verdict = desk.decide({}, ask_for(100, milliseconds(14)));
  EXPECT_EQ(verdict.answer, AdmissionAnswer::kAccept);
  EXPECT_EQ(verdict.ttft, milliseconds(12));
}

TEST(SloAdmission, ATenthOfTheTargetIsKept) {
  Desk desk;
  EXPECT_EQ(desk.decide({}, ask_for(100, milliseconds(13))).answer, AdmissionAnswer::kRefuse);
}

TEST(SloAdmission, BestEffortThatMayComeClaimsItsPart) {
  // Five steps of 80 rows, of which the third and the fifth leave it 16 rows and 4.5 ms.
  const AdmissionRules rules{.token_budget = 80, .patience_steps = 2};
  EXPECT_EQ(Desk(rules).decide({}, ask_for(400, milliseconds(500))).ttft, milliseconds(61));
  // On an idle server there is no use in waiting for better times.
  const AdmissionVerdict refused = Desk(rules).decide({}, ask_for(400, milliseconds(60)));
  EXPECT_EQ(refused.reason, RefusalReason::kNeverFirstToken);
  EXPECT_FALSE(refused.retry_after.has_value());
}

TEST(SloAdmission, TheLineBeforeItCounts) {
  Desk desk;
  // 400 rows of the others in a step of 420, then 80 rows: the budget is 512 a step.
  const Stage stage{.prompts = {waits(200), waits(200)}};
  EXPECT_EQ(desk.decide(stage, ask_for(80, milliseconds(60))).ttft, milliseconds(50));
  const AdmissionVerdict refused = desk.decide(stage, ask_for(80, milliseconds(40)));
  EXPECT_EQ(refused.answer, AdmissionAnswer::kRefuse);
  EXPECT_EQ(refused.reason, RefusalReason::kFirstToken);
  EXPECT_EQ(refused.ttft, milliseconds(50));
  EXPECT_EQ(refused.retry_after, milliseconds(14));  // 50 less what is left of 40
}

TEST(SloAdmission, TheStepInFlightMustEndFirst) {
  Desk desk;
  desk.forecast.shape.add_prefill(0, 80, 1);  // 10 ms
  AdmissionView view = view_of({});
  view.now = milliseconds(104);
  view.step_began = milliseconds(100);
  AdmissionAsk ask = ask_for(80, milliseconds(100));
  ask.arrived = milliseconds(103);
  EXPECT_EQ(desk.admission.decide(view, ask).ttft, milliseconds(17));  // 1 waited, 6, 10
  // One that lasts longer than was believed ends at any moment.
  view.now = ask.arrived = milliseconds(150);
  EXPECT_EQ(desk.admission.decide(view, ask).ttft, milliseconds(10));
}

TEST(SloAdmission, AClockThatJumpsGivesAnAnswerAllTheSame) {
  Desk desk;
  const Stage stage{.prompts = {waits(100, milliseconds(50))}};
  AdmissionView view = view_of(stage);
  for (const Nanos now : {Nanos{0}, Nanos{std::chrono::hours(1000)}, Nanos{milliseconds(1)}}) {
    view.now = now;
    view.step_began = std::chrono::hours(10);
    AdmissionAsk ask = ask_for(100, milliseconds(200));
    ask.arrived = std::chrono::hours(500);
    const AdmissionVerdict verdict = desk.admission.decide(view, ask);
    EXPECT_TRUE(verdict.answer == AdmissionAnswer::kAccept || verdict.retry_after.has_value() ||
                verdict.reason == RefusalReason::kNeverFirstToken);
  }
}

TEST(SloAdmission, OneThatOvertakesMustNotMakeOthersLate) {
  Desk desk;
  // A step that is full: who comes behind it does not make it longer.
  Stage stage{.prompts = {waits(512, milliseconds(70), 1)}};
  AdmissionAsk ask = ask_for(400, milliseconds(500));
  const AdmissionVerdict refused = desk.decide(stage, ask);
  EXPECT_EQ(refused.reason, RefusalReason::kOthersFirstToken);
  EXPECT_TRUE(refused.retry_after.has_value());
  ask.level = 1;  // behind it
  EXPECT_EQ(desk.decide(stage, ask).answer, AdmissionAnswer::kAccept);
  // One that is late already is no reason, unless it were made later.
  stage.prompts = {waits(512, milliseconds(10), 0)};
  stage.version = 2;
  EXPECT_EQ(desk.decide(stage, ask).answer, AdmissionAnswer::kAccept);
  ask.level = -1;
  EXPECT_EQ(desk.decide(stage, ask).answer, AdmissionAnswer::kRefuse);
}

TEST(SloAdmission, StepsKeepTheShortestTpotTarget) {
  Desk desk;
  Stage stage;
  stage.decodes.assign(50, {.known_tokens = 20, .output_tokens = 1, .max_tokens = 20});
  stage.least_tpot = milliseconds(8);
  // 50 decodes and a tile take 8.6 ms.
  const AdmissionVerdict refused = desk.decide(stage, ask_for(40, Nanos::max()));
  EXPECT_EQ(refused.reason, RefusalReason::kTokenTime);
  EXPECT_TRUE(refused.retry_after.has_value());
  stage.least_tpot = milliseconds(9);
  EXPECT_EQ(desk.decide(stage, ask_for(40, Nanos::max())).answer, AdmissionAnswer::kAccept);
  EXPECT_EQ(desk.decide(stage, ask_for(40, Nanos::max(), milliseconds(7))).reason,
            RefusalReason::kTokenTime);
}

TEST(SloAdmission, ImpossibleTargetsAreToldToBe) {
  Desk desk;
  const AdmissionVerdict first = desk.decide({}, ask_for(400, milliseconds(20)));
  EXPECT_EQ(first.reason, RefusalReason::kNeverFirstToken);
  EXPECT_EQ(first.ttft, milliseconds(42));
  EXPECT_FALSE(first.retry_after.has_value());
  const AdmissionVerdict token =
      desk.decide({}, ask_for(40, std::chrono::seconds(10), microseconds(1)));
  EXPECT_EQ(token.reason, RefusalReason::kNeverTokenTime);
  EXPECT_EQ(token.step_time, microseconds(2100));
  EXPECT_EQ(desk.decide({}, ask_for(40, Nanos{0})).reason, RefusalReason::kNeverFirstToken);
}

// Ten answers hold 940 blocks between them, and end within 19 steps.
Stage ten_long_answers() {
  Stage stage;
  stage.decodes.assign(
      10, {.known_tokens = 1500, .output_tokens = 1, .max_tokens = 20, .held_blocks = 94});
  stage.least_tpot = std::chrono::seconds(1);
  return stage;
}

TEST(SloAdmission, KvOfAllThatWereLetInMustFit) {
  Desk desk;
  Stage stage = ten_long_answers();
  const AdmissionVerdict refused = desk.decide(stage, ask_for(1000, milliseconds(200)));
  EXPECT_EQ(refused.reason, RefusalReason::kBlocks);
  EXPECT_GT(*refused.ttft, *refused.retry_after);
  EXPECT_EQ(desk.decide(stage, ask_for(300, milliseconds(200))).answer, AdmissionAnswer::kAccept);
  // Best effort that has waited too long has a right to its blocks.
  desk.head = {.blocks = 100, .places = 1};
  EXPECT_EQ(desk.decide(stage, ask_for(300, milliseconds(200))).reason, RefusalReason::kBlocks);
}

TEST(SloAdmission, ARequestMayWaitForTheBlocksOfAnswersThatEndInTime) {
  Desk desk;
  Stage stage = ten_long_answers();
  const AdmissionVerdict verdict = desk.decide(stage, ask_for(1000, std::chrono::seconds(10)));
  EXPECT_EQ(verdict.answer, AdmissionAnswer::kAccept);
  const AdmissionVerdict roomy = desk.decide(stage, ask_for(300, std::chrono::seconds(10)));
  EXPECT_GT(*verdict.ttft, *roomy.ttft + 19 * milliseconds(2)) << "the wait is in the forecast";
  // It may not overtake a prompt that waits.
  AdmissionAsk urgent = ask_for(1000, std::chrono::seconds(10));
  urgent.level = -1;
  stage.prompts = {waits(300, std::chrono::seconds(10), 0)};
  stage.version = 2;
  EXPECT_EQ(desk.decide(stage, urgent).reason, RefusalReason::kBlocks);
  EXPECT_EQ(desk.decide(stage, ask_for(1000, Nanos::max(), std::chrono::seconds(1))).reason,
            RefusalReason::kBlocks)
      << "without a target for the first token";
  // All places are taken by answers that end within 19 steps; the blocks of one are not enough.
  stage.prompts.clear();
  stage.decodes.assign(64, {.known_tokens = 20, .output_tokens = 1, .max_tokens = 20});
  stage.version = 3;
  EXPECT_EQ(desk.decide(stage, ask_for(10, std::chrono::seconds(10))).answer,
            AdmissionAnswer::kAccept);
  stage.decodes.assign(
      1, {.known_tokens = 1500, .output_tokens = 1, .max_tokens = 20, .held_blocks = 94});
  stage.prompts = {waits(15'000, std::chrono::seconds(100))};
  stage.version = 4;
  EXPECT_EQ(desk.decide(stage, ask_for(4000, std::chrono::seconds(100))).reason,
            RefusalReason::kBlocks)
      << "the answers that end free too little";
}

TEST(SloAdmission, TheLengthOfAnswersIsLearnt) {
  Desk desk;
  Stage stage;
  stage.decodes.assign(
      8, {.known_tokens = 800, .output_tokens = 1, .max_tokens = 2000, .held_blocks = 50});
  stage.least_tpot = std::chrono::seconds(1);
  AdmissionAsk ask = ask_for(800, std::chrono::seconds(10));
  ask.max_tokens = 2000;
  EXPECT_EQ(desk.decide(stage, ask).answer, AdmissionAnswer::kAccept);
  for (int i = 0; i < 200; ++i) {
    desk.admission.ended(1900);
  }
  stage.version = 2;
  EXPECT_EQ(desk.decide(stage, ask).reason, RefusalReason::kBlocks);
}

TEST(SloAdmission, NoMoreAreLetInThanMayRun) {
  Desk desk;
  Stage stage;
  stage.decodes.assign(64, {.known_tokens = 20, .output_tokens = 1, .max_tokens = 20});
  stage.least_tpot = std::chrono::seconds(1);
  EXPECT_EQ(desk.decide(stage, ask_for(10, std::chrono::seconds(1))).reason,
            RefusalReason::kPlaces);
}

TEST(SloAdmission, ALineThatIsFarTooLongIsSeenWithoutWalkingIt) {
  Desk desk;
  Stage stage;
  stage.prompts.assign(20000, waits(4000, std::chrono::hours(20)));
  const AdmissionVerdict refused = desk.decide(stage, ask_for(100, milliseconds(100)));
  EXPECT_EQ(refused.answer, AdmissionAnswer::kRefuse);
  EXPECT_LE(*refused.retry_after, std::chrono::minutes(10));
}

TEST(SloAdmission, AViewThatGoesOnGivesTheSameAnswersAsANewOne) {
  Desk going;
  Stage stage{.decodes = {{.known_tokens = 20, .output_tokens = 1, .max_tokens = 20}},
              .least_tpot = milliseconds(20)};
  for (int i = 0; i < 30; ++i) {
    const AdmissionAsk ask = ask_for(50 + 7 * i, milliseconds(300), milliseconds(20));
    Desk anew;
    const AdmissionVerdict a = going.decide(stage, ask);
    const AdmissionVerdict b = anew.decide(stage, ask);
    EXPECT_EQ(a.answer, b.answer) << i;
    EXPECT_EQ(a.ttft, b.ttft) << i;
    if (a.answer == AdmissionAnswer::kAccept) {
      stage.prompts.push_back(waits(ask.prompt_tokens, milliseconds(300)));
    }
  }
  EXPECT_GT(stage.prompts.size(), 5U);
  EXPECT_LT(stage.prompts.size(), 30U);
}

// At first it keeps its target, but not when the answer has grown.
TEST(SloAdmission, AnIdleServerNeverTellsToComeBack) {
  const latency::ModularModel times = latency::simple_model({.layers = 32,
                                                             .fixed = milliseconds(2),
                                                             .per_row = microseconds(50),
                                                             .per_context_nanos = 2000,
                                                             .per_pair_nanos = 10});
  StepForecast forecast;
  const OverdueHead head;
  SloAdmission admission({}, times, forecast, head);
  AdmissionAsk ask = ask_for(1000, Nanos::max(), microseconds(4300));
  ask.max_tokens = 300;
  const AdmissionVerdict verdict = admission.decide(view_of({}), ask);
  EXPECT_EQ(verdict.reason, RefusalReason::kNeverTokenTime);
  EXPECT_FALSE(verdict.retry_after.has_value());
  EXPECT_GT(verdict.step_time, ask.tpot);
}

TEST(SloAdmission, RefusedForOthersSakeItComesBackWhenTheyAreDone) {
  Desk desk;
  Stage stage{.prompts = {waits(512, milliseconds(70)), waits(512, milliseconds(130))}};
  AdmissionAsk ask = ask_for(1000, std::chrono::seconds(5));
  ask.level = -1;
  const AdmissionVerdict refused = desk.decide(stage, ask);
  EXPECT_EQ(refused.reason, RefusalReason::kOthersFirstToken);
  EXPECT_LT(*refused.ttft, std::chrono::seconds(5));
  EXPECT_GE(*refused.retry_after, milliseconds(106));  // what both of them take alone
}

TEST(SloAdmission, AVerdictDoesNotDependOnWhoAskedBefore) {
  Stage stage;
  for (int i = 0; i < 10; ++i) {
    stage.prompts.push_back(waits(1500, i == 9 ? milliseconds(1) : milliseconds(5000)));
  }
  const AdmissionAsk ask = ask_for(1000, std::chrono::seconds(9));
  AdmissionAsk other = ask;
  other.tpot = milliseconds(120);
  Desk first({.token_budget = 128});
  const AdmissionVerdict alone = first.decide(stage, ask);
  Desk second({.token_budget = 128});
  second.decide(stage, other);
  const AdmissionVerdict after = second.decide(stage, ask);
  EXPECT_EQ(alone.answer, after.answer);
  EXPECT_EQ(alone.ttft, after.ttft);
}

TEST(SloAdmission, TheClosedFormNeverRefusesWhatTheReplayAccepts) {
  std::mt19937_64 bits(5);
  const auto whole = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(bits() % static_cast<uint64_t>(high - low + 1));
  };
  int refused = 0;
  for (int seed = 0; seed < 5000; ++seed) {
    const latency::ModularModel times =
        latency::simple_model({.layers = 32,
                               .fixed = microseconds(whole(1000, 10000)),
                               .per_row = microseconds(whole(5, 50)),
                               .per_logit = microseconds(1),
                               .per_context_nanos = static_cast<double>(whole(1, 30)),
                               .per_pair_nanos = static_cast<double>(whole(1, 30))});
    StepForecast forecast;
    const OverdueHead head;
    SloAdmission admission({}, times, forecast, head);
    Stage stage;
    latency::StepShape decodes;
    for (int64_t i = whole(0, 32); i > 0; --i) {
      const auto known = static_cast<int32_t>(whole(10, 2000));
      stage.decodes.push_back({.known_tokens = known, .output_tokens = 1, .max_tokens = 20});
      decodes.add_decode(known);
    }
    const int64_t longest = whole(20, 500);
    std::vector<PromptAhead> line;
    for (int64_t i = whole(1, 60); i > 0; --i) {
      stage.prompts.push_back(waits(static_cast<int32_t>(whole(10, longest))));
      line.push_back({.rest = stage.prompts.back().rest});
    }
    stage.least_tpot = whole(0, 3) == 0 ? Nanos::max() : Nanos{milliseconds(whole(20, 300))};
    const AdmissionAsk ask = ask_for(static_cast<int32_t>(whole(10, longest)),
                                     milliseconds(whole(20, 5000)), stage.least_tpot);
    AdmissionView view = view_of(stage);
    view.places = view.free_places = 1000;
    view.total_blocks = view.free_blocks = 1000000;
    const AdmissionVerdict verdict = admission.decide(view, ask);
    if (verdict.reason != RefusalReason::kFirstToken) {
      continue;
    }
    ++refused;
    line.push_back({.rest = ask.rest()});
    const Nanos replayed =
        replay_prompts(times,
                       {.decodes = decodes, .limit = pace_of(stage.least_tpot), .step_tokens = 512},
                       line)
            .back();
    ASSERT_GT(replayed, planned_due(Nanos{0}, ask.ttft)) << "world " << seed;
    ASSERT_LE(*verdict.ttft, replayed) << "world " << seed;
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace tandem
