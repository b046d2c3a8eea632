// What the engine says of how it served a choice: to the client that asks, and to the metrics.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/engine.h"
#include "support/virtual_world.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;
using observe::SloOutcome;
using testing::make_request;
using testing::VirtualWorld;
using testing::WorldOptions;

Request explained(int prompt_tokens, int output_tokens, TokenId first = 10) {
  std::vector<TokenId> prompt(static_cast<size_t>(prompt_tokens));
  std::iota(prompt.begin(), prompt.end(), first);
  Request request = make_request(std::move(prompt), output_tokens);
  request.explain = true;
  return request;
}

// A step takes 1 ms and 10 us a token.
TEST(EngineReport, TimesAreThoseOfTheSteps) {
  VirtualWorld world(WorldOptions{});
  Request request = explained(20, 4);
  request.service_class = ServiceClass::kBestEffort;
  request.level = 5;
  request.slo = {.ttft = TtftRule{.base = 1200us}, .tpot = 1010us};
  world.arrive(7ms, 1, request);
  world.run_until_idle();
  const ServiceReport& report = *world.outcome(1).report;
  EXPECT_EQ(report.service_class, ServiceClass::kBestEffort);
  EXPECT_EQ(report.level, 5);
  EXPECT_EQ(report.queue, 0ms);
  EXPECT_EQ(report.ttft, 1200us);
  EXPECT_EQ(report.mean_gap, 1010us);
  EXPECT_EQ(report.most_gap, 1010us);
  EXPECT_EQ(report.ttft_target, 1200us);
  EXPECT_EQ(report.tpot_target, 1010us);
  EXPECT_TRUE(report.slo_met);
  EXPECT_EQ(report.device_tokens, 4);
  EXPECT_EQ(report.host_tokens, 0);
  EXPECT_EQ(report.hops, 0);
  EXPECT_EQ(report.parked, 0ms);
  EXPECT_EQ(report.preemptions, 0);
  EXPECT_EQ(world.requests().at(0).slo, SloOutcome::kMet);
  EXPECT_EQ(world.requests().at(0).service_class, ServiceClass::kBestEffort);
}

TEST(EngineReport, AMissIsOfTheTargetThatWasMissed) {
  VirtualWorld world(WorldOptions{});
  Request late = explained(20, 4);
  late.slo.ttft = TtftRule{.base = 1199us};
  Request slow = explained(20, 4, 500);
  slow.slo.tpot = 1009us;
  world.arrive(0ms, 1, late);
  world.arrive(50ms, 2, slow);
  world.arrive(90ms, 3, explained(20, 4, 900));
  world.run_until_idle();
  EXPECT_FALSE(world.outcome(1).report->slo_met);
  EXPECT_FALSE(world.outcome(2).report->slo_met);
  ASSERT_EQ(world.requests().size(), 3U);
  EXPECT_EQ(world.requests()[0].slo, SloOutcome::kMissed);
  EXPECT_FALSE(world.requests()[0].verdict.ttft_kept);
  EXPECT_TRUE(world.requests()[0].verdict.tpot_kept);
  EXPECT_TRUE(world.requests()[1].verdict.ttft_kept);
  EXPECT_FALSE(world.requests()[1].verdict.tpot_kept);
  EXPECT_EQ(world.requests()[2].slo, SloOutcome::kNoTargets);
}

TEST(EngineReport, ACancelledRequestIsNoMissBeforeItsTargetHasPassed) {
  VirtualWorld world(WorldOptions{});
  for (int64_t id = 1; id <= 2; ++id) {
    Request request = explained(100, 50, static_cast<TokenId>(id * 100));
    request.slo.ttft = TtftRule{.base = id == 1 ? Nanos(1s) : Nanos(1ms)};
    world.arrive(0ms, id, request);
    world.cancel(1500us, id);
  }
  world.run_until_idle();
  ASSERT_EQ(world.requests().size(), 2U);
  EXPECT_EQ(world.requests()[0].slo, SloOutcome::kAborted);
  EXPECT_EQ(world.requests()[1].slo, SloOutcome::kMissed);
  EXPECT_FALSE(world.outcome(2).report->ttft.has_value());
}

TEST(EngineReport, WaitingAndPreemptionsAreCounted) {
  WorldOptions options;
  options.executor.limits.total_blocks = 10;
  VirtualWorld world(options);
  world.arrive(0ms, 1, explained(6, 25));
  world.arrive(0ms, 2, explained(6, 25, 500));
  world.arrive(1ms, 3, explained(30, 2, 700));
  world.run_until_idle();
  EXPECT_EQ(world.outcome(1).report->preemptions, 0);
  EXPECT_GT(world.preemptions(), 0);
  EXPECT_EQ(world.outcome(2).report->preemptions + world.outcome(3).report->preemptions,
            world.preemptions());
  EXPECT_GT(*world.outcome(3).report->queue, 10ms);
  EXPECT_GT(world.outcome(2).report->most_gap, 2 * world.outcome(1).report->most_gap);
}

TEST(EngineReport, TheLongestChoiceIsKnownWhenTheLastOneEnds) {
  VirtualWorld world(WorldOptions{});
  Request request = explained(20, 6);
  request.n = 3;
  world.arrive(0ms, 1, request);
  world.stop(2500us, 1, 0);  // the first choice ends before the others
  world.run_until_idle();
  ASSERT_EQ(world.requests().size(), 3U);
  int32_t longest = 0;
  for (size_t i = 0; i < 3; ++i) {
    longest = std::max(longest, world.requests()[i].output_tokens);
    EXPECT_EQ(world.requests()[i].max_output_tokens.has_value(), i == 2) << i;
  }
  EXPECT_LT(world.requests()[0].output_tokens, longest);
  EXPECT_EQ(world.requests()[2].max_output_tokens, longest);
}

TEST(EngineReport, ARequestThatIsCancelledBeforeItsChoicesPartHasEndedWithOneRecord) {
  VirtualWorld world(WorldOptions{});
  Request request = explained(20, 6);
  request.n = 3;
  world.arrive(0ms, 1, request);
  world.cancel(0ms, 1);
  world.run_until_idle();
  ASSERT_EQ(world.requests().size(), 1U);
  EXPECT_EQ(world.requests()[0].max_output_tokens, 0);
}

TEST(EngineReport, TokensOfTheHostTierAreCountedWithTheirHops) {
  WorldOptions options;
  options.policy = "piggyback";
  options.policy_options[kOffloadBelow] = 100;
  options.policy_options[kOnloadAbove] = 100;
  options.executor.limits.host_blocks = 64;
  options.executor.limits.offloaded_sequences = 8;
  options.executor.limits.hops_per_token = 6;
  VirtualWorld world(options);
  Request request = explained(20, 30);
  request.service_class = ServiceClass::kBestEffort;
  world.arrive(0ms, 1, request);
  world.run_until_idle();
  const ServiceReport& report = *world.outcome(1).report;
  EXPECT_GT(report.host_tokens, 20);
  EXPECT_EQ(report.device_tokens + report.host_tokens, 30);
  EXPECT_EQ(report.hops, 6 * report.host_tokens);
  EXPECT_GT(report.parked, 0ms);
  EXPECT_LE(report.parked, world.now());
}

}  // namespace
}  // namespace tandem
