#include "sim/machine_log.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

observe::StepRecord step_at(Nanos started, Nanos duration, int32_t prompt, int32_t decodes) {
  observe::StepRecord record;
  record.started = started;
  record.duration = duration;
  record.prefill_tokens = prompt;
  record.resident_rows = prompt + decodes;
  record.regime = prompt > 0 ? "mixed" : "decode";
  record.predicted = duration + milliseconds(1);
  return record;
}

// Begins at 100 s.
class MachineLogs : public ::testing::Test {
 protected:
  void begin(std::string_view visiting = "piggyback") {
    clock_.set(seconds(100));
    log_.begin(clock_, sides_, visiting);
  }

  ManualClock clock_;
  BusySides sides_;
  MachineLog log_;
};

TEST_F(MachineLogs, AddsUpStepsByTimeAndByKind) {
  begin();
  log_.on_step(step_at(seconds(100), milliseconds(50), 500, 20));
  log_.on_step(step_at(seconds(100) + milliseconds(50), milliseconds(10), 0, 30));
  log_.on_gauges({.running = 30, .blocks_in_use = 50, .total_blocks = 100, .offloaded = 4});
  log_.on_tiers({.counts = {.hops = 70, .attention_time = milliseconds(5)}});
  log_.on_step(step_at(seconds(102), milliseconds(10), 0, 40));
  log_.on_tiers({.counts = {.hops = 100, .attention_time = milliseconds(9)}});
  ASSERT_EQ(log_.slices().size(), 3U);
  EXPECT_EQ(log_.slice_time(), Nanos{seconds(1)});
  EXPECT_EQ(log_.slices()[0].steps, 2);
  EXPECT_EQ(log_.slices()[0].prompt_tokens, 500);
  EXPECT_EQ(log_.slices()[0].decode_tokens, 50);
  EXPECT_EQ(log_.slices()[0].hops, 70);
  EXPECT_EQ(log_.slices()[0].offloaded, 4);
  EXPECT_EQ(log_.slices()[1].steps, 0);
  EXPECT_EQ(log_.slices()[2].hops, 30);
  EXPECT_EQ(log_.slices()[2].attention, Nanos{milliseconds(4)});
  EXPECT_EQ(log_.steps(), 3);
  const StepKind& decodes = log_.kinds().find("decode")->second;
  EXPECT_EQ(decodes.steps, 2);
  EXPECT_EQ(decodes.time, Nanos{milliseconds(20)});
  EXPECT_EQ(decodes.error, Nanos{milliseconds(2)});
  EXPECT_EQ(log_.kinds().find("mixed")->second.prompt_tokens, 500);
}

TEST_F(MachineLogs, StepsWithoutResidentsAreOfTheirOwnKind) {
  begin();
  log_.on_step(step_at(seconds(100), milliseconds(3), 0, 0));
  EXPECT_EQ(log_.kinds().begin()->first, "waiting");
}

// However long the run, so many slices: their length doubles.
TEST_F(MachineLogs, LongRunsHaveLongerSlices) {
  begin();
  for (int second = 0; second < 2000; ++second) {
    log_.on_step(step_at(seconds(100 + second), milliseconds(10), 10, 1));
  }
  EXPECT_EQ(log_.slice_time(), Nanos{seconds(8)});
  EXPECT_LE(log_.slices().size(), MachineLog::kMostSlices);
  int64_t steps = 0;
  for (const MachineSlice& slice : log_.slices()) {
    steps += slice.steps;
  }
  EXPECT_EQ(steps, 2000);
  EXPECT_EQ(log_.slices()[0].prompt_tokens, 80);
}

TEST_F(MachineLogs, IsWrittenAsCsv) {
  begin();
  log_.on_step(step_at(seconds(100), milliseconds(50), 500, 20));
  log_.on_gauges({.running = 30, .waiting = 2, .blocks_in_use = 50, .total_blocks = 100});
  const std::string csv = machine_csv(log_);
  EXPECT_EQ(csv.substr(csv.find('\n') + 1),
            "0,1,50.000,500.0,20.0,0.0,0.0000,30.0,2.0,0.0,0.5000,0.0000,0.0000,0.0000,0.0000\n");
}

TEST_F(MachineLogs, RatesOfTheLastSliceAreOverItsOwnTime) {
  begin();
  sides_.accelerator.add(seconds(101), seconds(101) + milliseconds(250));
  log_.on_step(step_at(seconds(101), milliseconds(250), 500, 20));
  clock_.set(seconds(101) + milliseconds(500));
  log_.end();
  EXPECT_DOUBLE_EQ(log_.slice_seconds(0), 1);
  EXPECT_DOUBLE_EQ(log_.slice_seconds(1), 0.5);
  const std::string csv = machine_csv(log_);
  EXPECT_EQ(csv.substr(csv.find("\n1,") + 1),
            "1,1,250.000,1000.0,40.0,0.0,0.0000,0.0,0.0,0.0,0.0000,0.0000,0.5000,0.0000,0.0000\n");
}

TEST_F(MachineLogs, ARestTooShortForARateBelongsToTheSliceBefore) {
  begin();
  log_.on_step(step_at(seconds(100), milliseconds(900), 100, 20));
  log_.on_step(step_at(seconds(100) + milliseconds(900), milliseconds(101), 500, 20));
  clock_.set(seconds(101) + milliseconds(1));
  log_.end();
  ASSERT_EQ(log_.slices().size(), 1U);
  EXPECT_EQ(log_.slices()[0].prompt_tokens, 600);
  EXPECT_DOUBLE_EQ(log_.slice_seconds(0), 1.001);
}

TEST_F(MachineLogs, NamesTheModeOfAStepByWhoIsInIt) {
  begin("overlap");
  observe::StepRecord step = step_at(seconds(100), milliseconds(10), 0, 5);
  log_.on_step(step);
  step.visits = 3;
  log_.on_step(step);
  log_.on_step(step);
  step.mode = StepMode::kLanes;
  log_.on_step(step);
  step.resident_rows = 0;
  log_.on_step(step);
  ASSERT_EQ(log_.modes().size(), 4U);
  EXPECT_EQ(log_.modes().find("resident")->second.steps, 1);
  EXPECT_EQ(log_.modes().find("overlap")->second.steps, 2);
  EXPECT_EQ(log_.modes().find("overlap")->second.time, Nanos{milliseconds(20)});
  EXPECT_EQ(log_.modes().find("lanes")->second.steps, 1);
  EXPECT_EQ(log_.modes().find("visitors")->second.steps, 1);
}

// The accelerator works for 0.8 s of the first step and throughout the second, which is launched
// half a second before the first ends. The busy time is settled in between.
TEST_F(MachineLogs, TheAcceleratorsIdleTimeInAStepIsAShareOfItsOwnTime) {
  begin();
  sides_.accelerator.add(seconds(100), seconds(100) + milliseconds(800));
  sides_.accelerator.add(seconds(101), seconds(101) + milliseconds(1000));
  observe::StepRecord step = step_at(seconds(100), seconds(1), 0, 5);
  step.visits = 1;
  step.mode = StepMode::kLanes;
  for (int i = 0; i < 10; ++i) {
    clock_.advance(milliseconds(100));
    log_.on_gauges({});
  }
  log_.on_step(step);
  step.started = seconds(100) + milliseconds(500);
  step.duration = milliseconds(1500);
  clock_.advance(milliseconds(900));
  log_.on_gauges({});
  EXPECT_DOUBLE_EQ(log_.modes().find("lanes")->second.idle.median(), 0.2);
  log_.on_step(step);
  EXPECT_DOUBLE_EQ(log_.modes().find("lanes")->second.idle.median(), 0);
  log_.end();
  EXPECT_EQ(log_.busy().accelerator, Nanos{milliseconds(1800)});
}

// 40 sequences for two seconds, then none for two.
TEST_F(MachineLogs, OffloadedSequencesAreAMeanOverTime) {
  begin();
  log_.on_gauges({.offloaded = 40});
  clock_.advance(seconds(2));
  log_.on_gauges({.offloaded = 0});
  clock_.advance(seconds(2));
  log_.end();
  EXPECT_DOUBLE_EQ(log_.mean_offloaded(), 20);
  EXPECT_EQ(log_.max_offloaded(), 40);
  EXPECT_EQ(log_.duration(), Nanos{seconds(4)});
}

TEST_F(MachineLogs, BusyTimeFallsIntoTheSliceInWhichItIsSettled) {
  begin();
  sides_.accelerator.add(seconds(100), seconds(103));
  sides_.host.add(seconds(102), seconds(104));
  for (int i = 0; i < 40; ++i) {
    clock_.advance(milliseconds(100));
    log_.on_gauges({});
  }
  log_.end();
  EXPECT_EQ(log_.busy().accelerator, Nanos{seconds(3)});
  EXPECT_EQ(log_.busy().host, Nanos{seconds(2)});
  EXPECT_EQ(log_.busy().both, Nanos{seconds(1)});
  ASSERT_GE(log_.slices().size(), 4U);
  EXPECT_EQ(log_.slices()[1].busy.host, Nanos{0});
  EXPECT_GT(log_.slices()[3].busy.host, Nanos{milliseconds(900)});
}

// Nothing is offloaded in the first second; then the host's one server always works.
TEST_F(MachineLogs, TimeIsGivenToWhatHoldsBackOffloadedTokens) {
  begin();
  observe::TierRecord sums{.counts = {.workers = 1, .layers = 4}, .max_rows = 256};
  for (int i = 0; i <= 100; ++i) {
    log_.on_gauges({.offloaded = i < 10 ? 0 : 2000});
    log_.on_step(step_at(clock_.now() - milliseconds(100), milliseconds(100), 0, 20));
    if (i > 10) {
      sums.counts.hops += 400;
      sums.counts.attention_time += milliseconds(100);
    }
    log_.on_tiers(sums);
    clock_.advance(milliseconds(100));
  }
  log_.end();
  const RegimeTimes& times = log_.regimes();
  EXPECT_GT(times[static_cast<size_t>(observe::Regime::kHostBandwidth)], Nanos{seconds(7)});
  EXPECT_GE(times.back(), Nanos{seconds(1)});
  EXPECT_LT(times.back(), Nanos{seconds(2)});
}

TEST_F(MachineLogs, KeepsAnEvenSampleOfPredictions) {
  begin();
  for (int i = 0; i < 10000; ++i) {
    log_.on_step(step_at(seconds(100) + milliseconds(i), milliseconds(1 + i % 7), i % 3, 1));
  }
  size_t kept = 0;
  for (const auto& [kind, steps] : log_.predictions()) {
    kept += steps.size();
    EXPECT_EQ(steps.front().predicted - steps.front().actual, Nanos{milliseconds(1)});
  }
  EXPECT_EQ(log_.predictions().size(), 2U);
  EXPECT_LE(kept, MachineLog::kMaxPredictions);
  EXPECT_GE(kept, MachineLog::kMaxPredictions / 2 - 2);
}

TEST(StepShares, CountStepsUpToAShareAndFindTheMedian) {
  StepShares errors;
  EXPECT_EQ(errors.within(0.08), 0);
  EXPECT_EQ(errors.median(), 0);
  for (const int64_t error : {0, 10, 80, 90, 1500}) {
    errors.add(Nanos{error}, Nanos{1000});
  }
  EXPECT_DOUBLE_EQ(errors.within(0.08), 0.6) << "8 % is within 8 %";
  EXPECT_DOUBLE_EQ(errors.within(0.09), 0.8);
  EXPECT_NEAR(errors.median(), 0.08, 1e-9);
  EXPECT_DOUBLE_EQ(errors.within(1), 1) << "the last count has all larger shares";
}

}  // namespace
}  // namespace tandem::sim
