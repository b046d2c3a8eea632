// A host that fails, is slow for ever or loses its workers: nobody's text changes, and what does
// not need it is not touched.
#include <gtest/gtest.h>

#include "support/two_tier_world.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;
using testing::Dice;
using testing::expect_drained;
using testing::expected_tokens;
using testing::make_request;
using testing::prompt_of;
using testing::two_tiers;
using testing::VirtualWorld;
using testing::WorldOptions;

TEST(EngineHostFaults, AHostThatAlwaysFailsCostsTheRequestAfterABoundedNumberOfTries) {
  Dice dice;
  dice.offload = 100;
  dice.onload = dice.drop = dice.preempt = 0;
  dice.only_decodes = true;
  WorldOptions options = two_tiers(dice);
  options.executor.host.failures_per_thousand = 1000;
  VirtualWorld world(options);
  const Request one_token = make_request(prompt_of(9), 1);
  world.arrive(0ms, 1, make_request(prompt_of(30), 40));
  world.arrive(0ms, 2, one_token);
  world.run_until_idle();
  EXPECT_EQ(world.outcome(1).reason, FinishReason::kError);
  EXPECT_EQ(world.outcome(1).finishes, 1);
  EXPECT_NE(world.outcome(1).error.find("3 times"), std::string::npos) << world.outcome(1).error;
  EXPECT_EQ(world.executor().host().failures(), 3);
  EXPECT_EQ(world.outcome(2).tokens, expected_tokens(one_token, 0));
  expect_drained(world);
}

TEST(EngineHostFaults, AFailureOnceInAWhileChangesNothingInTheText) {
  Dice dice;
  dice.offload = 60;
  WorldOptions options = two_tiers(dice);
  options.executor.host.failures_per_thousand = 50;
  options.engine.max_host_failures = 1000;
  VirtualWorld world(options);
  std::vector<Request> requests;
  for (int64_t id = 1; id <= 6; ++id) {
    requests.push_back(
        make_request(prompt_of(10 + static_cast<int>(id)), 30, static_cast<uint64_t>(id)));
    world.arrive(0ms, id, requests.back());
  }
  world.run_until_idle();
  EXPECT_GT(world.executor().host().failures(), 0);
  for (int64_t id = 1; id <= 6; ++id) {
    EXPECT_EQ(world.outcome(id).tokens, expected_tokens(requests[static_cast<size_t>(id) - 1], 0));
  }
  expect_drained(world);
}

TEST(EngineHostFaults, WhatALostWorkerMayStillWriteToIsGivenToNobody) {
  int64_t lost = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Dice dice;
    dice.seed = seed;
    dice.offload = 80;
    WorldOptions options = two_tiers(dice, 32, 24);
    options.executor.host.failures_per_thousand = 60;
    options.executor.host.lost_per_thousand = 500;
    options.engine.max_host_failures = 1000;
    VirtualWorld world(options);
    std::vector<Request> requests;
    for (int64_t id = 1; id <= 8; ++id) {
      requests.push_back(
          make_request(prompt_of(6 + static_cast<int>(id)), 30, static_cast<uint64_t>(id)));
      world.arrive(std::chrono::milliseconds(id), id, requests.back());
    }
    world.run_until_idle();
    for (int64_t id = 1; id <= 8; ++id) {
      EXPECT_EQ(world.outcome(id).tokens,
                expected_tokens(requests[static_cast<size_t>(id) - 1], 0));
    }
    expect_drained(world);
    lost += world.executor().host().workers_lost();
  }
  EXPECT_GT(lost, 100);
}

TEST(EngineHostFaults, AHostThatFailsAgainAndAgainIsLeftAloneForAWhileAndThenTriedAgain) {
  Dice dice;
  dice.offload = 100;
  dice.onload = dice.drop = dice.preempt = 0;
  dice.only_decodes = true;
  WorldOptions options = two_tiers(dice);
  options.executor.host.failures_per_thousand = 1000;
  options.engine.max_host_failures = 1000;
  VirtualWorld world(options);
  const auto arrive = [&](Nanos at, int64_t id) {
    world.arrive(at, id, make_request(prompt_of(9), 30));
  };
  arrive(0ms, 1);
  arrive(1s, 2);
  world.run_until_idle();
  EXPECT_EQ(world.executor().host().failures(), 4) << "then nobody is sent there";
  EXPECT_EQ(world.outcome(1).tokens.size(), 30U);
  EXPECT_EQ(world.outcome(2).tokens.size(), 30U);
  arrive(20s, 3);
  world.run_until_idle();
  EXPECT_EQ(world.executor().host().failures(), 5) << "one try, and it is left alone for longer";
  arrive(35s, 4);
  world.run_until_idle();
  EXPECT_EQ(world.executor().host().failures(), 5);
  expect_drained(world);
}

TEST(EngineHostFaults, WhatTheHostFailedComesBackWithItsKvWhereThereIsRoom) {
  Dice dice;
  dice.offload = 100;
  dice.onload = dice.drop = dice.preempt = 0;
  dice.only_decodes = true;
  WorldOptions options = two_tiers(dice);
  options.executor.host.failures_per_thousand = 300;
  options.engine.max_host_failures = 1000;
  VirtualWorld world(options);
  const Request request = make_request(prompt_of(30), 40);
  world.arrive(0ms, 1, request);
  world.run_until_idle();
  EXPECT_EQ(world.outcome(1).tokens, expected_tokens(request, 0));
  EXPECT_GT(world.executor().host().failures(), 3);
  EXPECT_EQ(world.preemptions(), 0) << "nothing is computed anew";
  expect_drained(world);
}

// A stream's token times, beside best-effort requests whose hops never end, or alone.
std::vector<Nanos> times_beside(bool frozen_guests) {
  WorldOptions options = two_tiers({});
  options.make_policy = {};
  options.policy = "piggyback";
  options.policy_options[kOffloadBelow] = 100;
  options.policy_options[kOnloadAbove] = 100;
  options.executor.host.frozen = true;
  VirtualWorld world(options);
  for (int64_t id = 1; frozen_guests && id <= 3; ++id) {
    Request guest = make_request(prompt_of(9, static_cast<TokenId>(50 * id)), 20);
    guest.service_class = ServiceClass::kBestEffort;
    world.arrive(0ms, id, guest);
    world.cancel(1h, id);
  }
  world.arrive(1s, 9, make_request(prompt_of(30), 60));
  world.run_until_idle();
  EXPECT_EQ(world.executor().host().entered(), frozen_guests ? 3 : 0);
  EXPECT_EQ(world.outcome(9).tokens.size(), 60U);
  return world.outcome(9).times;
}

TEST(EngineHostFaults, StepsTakeExactlyAsLongWithTheHostFrozenAsWithoutGuests) {
  EXPECT_EQ(times_beside(true), times_beside(false));
}

}  // namespace
}  // namespace tandem
