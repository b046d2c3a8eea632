#include "sim/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/test_support.h"

namespace tandem::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// Decode alone: 16 GB of weights at 85 % of 2 TB/s are 9.4 ms.
TEST(Simulate, OneRequestTakesWhatTheMachineTakes) {
  const Simulated simulated = must_run(an_a100(), fixed_load(1, 1, 100, 50));
  ASSERT_EQ(simulated.run.records.size(), 1U);
  const loadgen::RequestRecord& record = simulated.run.records.front();
  EXPECT_EQ(record.outcome, loadgen::Outcome::kDone);
  EXPECT_EQ(record.chunk_times.size(), 50U);
  EXPECT_EQ(record.input_tokens(), 100);
  EXPECT_GT(*record.tpot(), Nanos{milliseconds(9)});
  EXPECT_LT(*record.tpot(), Nanos{milliseconds(12)});
  EXPECT_GE(simulated.machine.steps(), 50);
}

TEST(Simulate, MoreAcceleratorsAreFasterButPayForTheirSums) {
  const loadgen::Load load = fixed_load(1, 1, 100, 50);
  SimulateOptions options = an_a100();
  const Nanos one = *must_run(options, load).run.records.front().tpot();
  options.machine.group.ranks = 4;
  const Nanos four = *must_run(options, load).run.records.front().tpot();
  EXPECT_LT(four, one / 2);
  EXPECT_GT(four, one / 4);
}

// The profile that admission and plans go by is measured on the simulated machine.
TEST(Simulate, TargetsAreKeptByWhatTheProfileSays) {
  SimulateOptions options = an_a100();
  options.node.policy = "omniserve";
  loadgen::Load load = fixed_load(200, 3, 500, 80);
  load.groups.front().slo.ttft = TtftRule{.base = seconds(2)};
  load.groups.front().header_slo = {.ttft = TtftRule{.base = seconds(9)}, .tpot = milliseconds(40)};
  const Simulated simulated = must_run(options, load);
  EXPECT_GT(simulated.profiled, Nanos{seconds(1)});
  for (const loadgen::RequestRecord& record : simulated.run.records) {
    ASSERT_EQ(record.outcome, loadgen::Outcome::kDone) << record.message;
    EXPECT_LE(record.ttft(), Nanos{seconds(2)});
    EXPECT_LE(*record.tpot(), Nanos{milliseconds(40)});
  }
}

// Beliefs are corrected while the run goes on, but a policy that believes in half the times begins
// with promises that the machine does not keep as well as the true ones.
TEST(Simulate, WhatIsBelievedMayBeWrong) {
  SimulateOptions options = an_a100();
  options.node.policy = "omniserve";
  loadgen::Load load = fixed_load(100, 6, 1500, 80);
  load.groups.front().slo = {.ttft = TtftRule{.base = seconds(2)}, .tpot = milliseconds(40)};
  const Simulated truth = must_run(options, load);
  options.beliefs = {.factor = 0.5, .noise = 0.05};
  const Simulated hopeful = must_run(options, load);
  EXPECT_LT(to_seconds(hopeful.profiled), to_seconds(truth.profiled));
  EXPECT_NE(hopeful.run.duration, truth.run.duration);
  EXPECT_EQ(must_run(options, load).run.duration, hopeful.run.duration);
}

// More best effort than the accelerator's memory holds: what decodes on the host is computed there
// by hops, and every answer is complete.
TEST(Simulate, ASecondTierTakesBestEffort) {
  for (const char* policy : {"piggyback", "overlap", "lanes", "omniserve", "apex", "apex_plus"}) {
    SimulateOptions options = an_a100();
    options.node.policy = policy;
    options.node.max_num_seqs = 64;
    options.machine.memory_bytes = int64_t{17} << 30;
    options.machine.host_memory_bytes = int64_t{64} << 30;
    loadgen::Load load = fixed_load(60, 20, 700, 60);
    load.groups.front() = {.name = "bulk", .service_tier = "flex"};
    const Simulated one = must_run(options, load);
    for (const loadgen::RequestRecord& record : one.run.records) {
      ASSERT_EQ(record.outcome, loadgen::Outcome::kDone) << policy << ": " << record.message;
      EXPECT_EQ(record.chunk_times.size(), 60U);
    }
    EXPECT_GT(one.tiers.hops, 0) << policy;
    EXPECT_GT(one.tiers.offloaded_bytes, 0) << policy;
    const Simulated two = must_run(options, load);
    EXPECT_EQ(one.run.duration, two.run.duration) << policy;
    EXPECT_EQ(one.tiers.hops, two.tiers.hops) << policy;
  }
}

// Of output, with the memory of `options`; from the first arrival to the last token.
double tokens_per_second(const SimulateOptions& options, const loadgen::Load& load) {
  const Simulated simulated = must_run(options, load);
  int64_t tokens = 0;
  for (const loadgen::RequestRecord& record : simulated.run.records) {
    EXPECT_EQ(record.outcome, loadgen::Outcome::kDone) << record.message;
    tokens += std::ssize(record.chunk_times);
  }
  return static_cast<double>(tokens) / to_seconds(simulated.run.duration);
}

// Whatever the host gives, the repaired schedulers of two lanes lose nothing to the accelerator
// alone.
TEST(Simulate, LanesAndOverlapAreNeverWorseThanTheAcceleratorAlone) {
  for (const auto& [input, output] : {std::pair(700, 60), std::pair(400, 200)}) {
    SimulateOptions options = an_a100();
    options.node.max_num_seqs = 64;
    options.machine.memory_bytes = int64_t{17} << 30;
    loadgen::Load load = fixed_load(300, 20, input, output);
    load.groups.front() = {.name = "bulk", .service_tier = "flex"};
    const double alone = tokens_per_second(options, load);
    options.machine.host_memory_bytes = int64_t{64} << 30;
    for (const double rate : {0.4e9, 10e9, 150e9}) {
      options.hosts = {{.bytes_per_second = rate}};
      for (const char* policy : {"neo_plus", "apex_plus"}) {
        options.node.policy = policy;
        const double both = tokens_per_second(options, load);
        EXPECT_GE(both, 0.99 * alone) << policy << ", host " << rate << ", output " << output;
      }
    }
  }
}

// The profile's hops are not the load's: an accelerator with room for all offloads nothing.
TEST(Simulate, WhatProfilingDidDoesNotCount) {
  SimulateOptions options = an_a100();
  options.node.policy = "omniserve";
  options.machine.host_memory_bytes = int64_t{64} << 30;
  const Simulated simulated = must_run(options, fixed_load(20, 2, 100, 20));
  EXPECT_GT(simulated.profiled, Nanos{seconds(1)});
  EXPECT_EQ(simulated.tiers.hops, 0);
  EXPECT_EQ(simulated.machine.busy().host, Nanos{0});
  for (const MachineSlice& slice : simulated.machine.slices()) {
    EXPECT_EQ(slice.hops, 0);
  }
}

// Four hosts of a quarter each attend as fast as one in the long run, unless their links are slow.
TEST(Simulate, SeveralHostsShareTheOffloadedSequences) {
  SimulateOptions options = an_a100();
  options.node.policy = "lanes";
  offload_early(options.node);
  options.node.max_num_seqs = 64;
  options.machine.memory_bytes = int64_t{19} << 30;
  options.machine.host_memory_bytes = int64_t{64} << 30;
  options.hosts = {{.bytes_per_second = 40e9, .workers = 8}};
  loadgen::Load load = fixed_load(60, 20, 700, 60);
  load.groups.front() = {.name = "bulk", .service_tier = "flex"};
  const auto seconds_with = [&](const SimHostSpec& host, size_t count) {
    options.hosts.assign(count, host);
    const Simulated simulated = must_run(options, load);
    EXPECT_GT(simulated.tiers.hops, 0);
    EXPECT_EQ(simulated.run.duration, must_run(options, load).run.duration);
    for (const loadgen::RequestRecord& record : simulated.run.records) {
      EXPECT_EQ(record.outcome, loadgen::Outcome::kDone) << record.message;
    }
    return to_seconds(simulated.run.duration);
  };
  const SimHostSpec whole{.bytes_per_second = 40e9, .workers = 8};
  const SimHostSpec part{.bytes_per_second = 10e9, .workers = 2, .kv_bytes = int64_t{16} << 30};
  SimHostSpec remote = part;
  remote.latency = milliseconds(1);
  const double one = seconds_with(whole, 1);
  const double four = seconds_with(part, 4);
  EXPECT_GT(four, 0.9 * one);
  EXPECT_LT(four, 1.5 * one);
  EXPECT_LT(seconds_with(whole, 4), one);
  EXPECT_GT(seconds_with(remote, 4), four);
}

// The host is so slow that omniserve stops moving sequences there, unless the profile says that it
// is twenty times as fast.
TEST(Simulate, WhatIsBelievedOfTheHostMayBeWrong) {
  SimulateOptions options = an_a100();
  options.node.policy = "omniserve";
  options.node.max_num_seqs = 64;
  options.machine.memory_bytes = int64_t{17} << 30;
  options.machine.host_memory_bytes = int64_t{64} << 30;
  options.hosts = {{.bytes_per_second = 0.4e9, .workers = 8}};
  loadgen::Load load = fixed_load(60, 20, 700, 60);
  load.groups.front() = {.name = "bulk", .service_tier = "flex"};
  const Simulated truth = must_run(options, load);
  options.beliefs.host = 0.05;
  const Simulated hopeful = must_run(options, load);
  EXPECT_LT(hopeful.profiled, truth.profiled);
  EXPECT_GT(hopeful.tiers.offloaded_bytes, truth.tiers.offloaded_bytes);
  EXPECT_EQ(hopeful.run.duration, must_run(options, load).run.duration);
}

// Most of the time goes into steps with lanes, which pass the dense stages twice.
TEST(Simulate, StepsWithLanesTakeWhatIsPredicted) {
  for (const char* policy : {"neo_plus", "apex_plus"}) {
    SimulateOptions options = an_a100();
    options.machine = {.name = "t4",
                       .accelerator = *device::find_profile("t4"),
                       .memory_bytes = int64_t{15} << 30,
                       .host_memory_bytes = int64_t{64} << 30,
                       .link_bytes = 12e9};
    options.shape = *model::preset_config("7B");
    options.hosts = {{.bytes_per_second = 180e9, .workers = 32}};
    options.node.max_model_len = 1024;
    options.node.kv_blocks = 108;
    options.node.max_num_batched_tokens = 512;
    options.node.policy = policy;
    options.limit = seconds(60);
    loadgen::Load load = fixed_load(120, 3, 370, 120);
    load.groups.front() = {.name = "bulk", .service_tier = "flex"};
    const Simulated simulated = must_run(options, load);
    const auto lanes = simulated.machine.modes().find(std::string_view("lanes"));
    ASSERT_NE(lanes, simulated.machine.modes().end()) << policy;
    EXPECT_GT(lanes->second.steps, 200) << policy;
    EXPECT_GT(2 * lanes->second.time, simulated.machine.duration()) << policy;
    EXPECT_GE(lanes->second.errors.within(0.08), 0.8) << policy;
    EXPECT_LE(lanes->second.errors.median(), 0.02) << policy;
  }
}

// The engine asks to be woken at times that move on with every step. Were what it asked for before
// still there, it would be woken ten times as often.
TEST(Simulate, TimersDoNotPileUp) {
  SimulateOptions options = an_a100();
  options.node.policy = "sarathi";
  options.node.max_num_seqs = 8;
  options.machine.host_memory_bytes = int64_t{8} << 30;
  const Simulated one = must_run(options, fixed_load(200, 2, 100, 100));
  EXPECT_LT(one.happenings, 60 * one.machine.steps());
}

// Best effort that has waited long has a right to a quarter of the places, which its running
// requests have already.
TEST(Simulate, ALongBestEffortQueueDoesNotTakeEveryFreePlace) {
  loadgen::LoadStream chat;
  chat.options.arrivals.rate_per_s = 0.5;
  chat.options.requests = 20;
  chat.options.input = workload::Lengths::fixed(256);
  chat.options.output = workload::Lengths::fixed(32);
  chat.groups = {{.name = "chat", .service_tier = "priority"}};
  chat.models = {"8B"};
  loadgen::LoadStream bulk = chat;
  bulk.options.arrivals.rate_per_s = 1000;
  bulk.options.requests = 40;
  bulk.options.output = workload::Lengths::uniform(300, 1500);
  bulk.groups = {{.name = "bulk", .service_tier = "flex"}};
  const loadgen::Load load = *loadgen::make_load({chat, bulk}, 7);
  SimulateOptions options = an_a100();
  options.node.max_num_seqs = 8;
  const auto wait_of_chat = [&](const char* policy) {
    options.node.policy = policy;
    double wait = 0;
    for (const loadgen::RequestRecord& record : must_run(options, load).run.records) {
      EXPECT_EQ(record.outcome, loadgen::Outcome::kDone) << policy;
      wait += record.group == 0 ? to_seconds(record.ttft()) : 0;
    }
    return wait;
  };
  EXPECT_LE(wait_of_chat("omniserve"), 1.1 * wait_of_chat("sarathi"));
}

TEST(Simulate, ARunThatCannotEndStopsAtItsLimit) {
  SimulateOptions options = an_a100();
  options.limit = seconds(20);
  const Simulated simulated = must_run(options, fixed_load(2000, 100, 2000, 400));
  EXPECT_TRUE(simulated.run.interrupted);
  EXPECT_LE(simulated.run.duration, Nanos{seconds(21)});
}

TEST(Simulate, ARunMayStopWithHopsAndCopiesUnderWay) {
  SimulateOptions options = an_a100();
  options.node.policy = "lanes";
  options.node.max_num_seqs = 128;
  options.machine.memory_bytes = int64_t{17} << 30;
  options.machine.host_memory_bytes = int64_t{64} << 30;
  loadgen::Load load = fixed_load(400, 40, 700, 200);
  load.groups.front() = {.name = "bulk", .service_tier = "flex"};
  for (const Nanos limit : {milliseconds(3000), milliseconds(3013), milliseconds(3507)}) {
    options.limit = limit;
    const Simulated simulated = must_run(options, load);
    EXPECT_TRUE(simulated.run.interrupted);
    EXPECT_GT(simulated.tiers.hops_in_flight, 0);
    EXPECT_LE(simulated.compute_busy, 1) << "work that was launched and had not run";
  }
}

TEST(Simulate, WhatDoesNotFitIsRefused) {
  SimulateOptions options = an_a100();
  const Simulated simulated = must_run(options, fixed_load(1, 1, 8192, 10));
  EXPECT_EQ(simulated.run.records.front().outcome, loadgen::Outcome::kFailed);
  EXPECT_THAT(simulated.run.records.front().message, HasSubstr("max-model-len"));

  options.machine.memory_bytes = int64_t{8} << 30;
  const Result<Simulated> small = simulate(options, fixed_load(1, 1, 10, 10), {});
  ASSERT_FALSE(small.ok());
  EXPECT_THAT(small.error().message, HasSubstr("does not fit"));
}

}  // namespace
}  // namespace tandem::sim
