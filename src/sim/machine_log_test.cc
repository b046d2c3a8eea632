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

TEST(MachineLog, AddsUpStepsByTimeAndByKind) {
  MachineLog log;
  log.begin(seconds(100));
  log.on_step(step_at(seconds(100), milliseconds(50), 500, 20));
  log.on_step(step_at(seconds(100) + milliseconds(50), milliseconds(10), 0, 30));
  log.on_gauges({.running = 30, .blocks_in_use = 50, .total_blocks = 100, .offloaded = 4});
  log.on_tiers({.counts = {.hops = 70, .attention_time = milliseconds(5)}});
  log.on_step(step_at(seconds(102), milliseconds(10), 0, 40));
  log.on_tiers({.counts = {.hops = 100, .attention_time = milliseconds(9)}});
  ASSERT_EQ(log.slices().size(), 3U);
  EXPECT_EQ(log.slice_time(), Nanos{seconds(1)});
  EXPECT_EQ(log.slices()[0].steps, 2);
  EXPECT_EQ(log.slices()[0].prompt_tokens, 500);
  EXPECT_EQ(log.slices()[0].decode_tokens, 50);
  EXPECT_EQ(log.slices()[0].hops, 70);
  EXPECT_EQ(log.slices()[0].offloaded, 4);
  EXPECT_EQ(log.slices()[1].steps, 0);
  EXPECT_EQ(log.slices()[2].hops, 30);
  EXPECT_EQ(log.slices()[2].attention, Nanos{milliseconds(4)});
  EXPECT_EQ(log.steps(), 3);
  const StepKind& decodes = log.kinds().find("decode")->second;
  EXPECT_EQ(decodes.steps, 2);
  EXPECT_EQ(decodes.time, Nanos{milliseconds(20)});
  EXPECT_EQ(decodes.error, Nanos{milliseconds(2)});
  EXPECT_EQ(log.kinds().find("mixed")->second.prompt_tokens, 500);
}

TEST(MachineLog, StepsWithoutResidentsAreOfTheirOwnKind) {
  MachineLog log;
  log.begin(Nanos{0});
  log.on_step(step_at(Nanos{0}, milliseconds(3), 0, 0));
  EXPECT_EQ(log.kinds().begin()->first, "waiting");
}

// However long the run, so many slices: their length doubles.
TEST(MachineLog, LongRunsHaveLongerSlices) {
  MachineLog log;
  log.begin(Nanos{0});
  for (int second = 0; second < 2000; ++second) {
    log.on_step(step_at(seconds(second), milliseconds(10), 10, 1));
  }
  EXPECT_EQ(log.slice_time(), Nanos{seconds(8)});
  EXPECT_LE(log.slices().size(), MachineLog::kMostSlices);
  int64_t steps = 0;
  for (const MachineSlice& slice : log.slices()) {
    steps += slice.steps;
  }
  EXPECT_EQ(steps, 2000);
  EXPECT_EQ(log.slices()[0].prompt_tokens, 80);
}

TEST(MachineLog, IsWrittenAsCsv) {
  MachineLog log;
  log.begin(Nanos{0});
  log.on_step(step_at(Nanos{0}, milliseconds(50), 500, 20));
  log.on_gauges({.running = 30, .waiting = 2, .blocks_in_use = 50, .total_blocks = 100});
  const std::string csv = machine_csv(log);
  EXPECT_EQ(csv.substr(csv.find('\n') + 1),
            "0,1,50.000,500.0,20.0,0.0,0.0000,30.0,2.0,0.0,0.5000,0.0000\n");
}

}  // namespace
}  // namespace tandem::sim
