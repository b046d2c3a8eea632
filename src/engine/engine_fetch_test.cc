// Prefixes that only the host holds come back instead of being computed anew.
#include <gtest/gtest.h>

#include "support/two_tier_world.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;
using testing::expect_drained;
using testing::expected_tokens;
using testing::make_request;
using testing::prompt_of;
using testing::two_tiers;
using testing::VirtualWorld;
using testing::WorldOptions;

constexpr int32_t kBlock = 4;

// Every best-effort decode goes to the host, so what it leaves is cached there.
WorldOptions offloading(int64_t blocks) {
  WorldOptions options = two_tiers({}, blocks);
  options.make_policy = {};
  options.policy = "piggyback";
  options.policy_options[kOffloadBelow] = 100;
  options.policy_options[kOnloadAbove] = 100;
  options.executor.host.max_copy = 2ms;
  options.executor.host.max_hops = 1ms;
  return options;
}

Request best_effort(std::vector<TokenId> prompt, int32_t max_tokens) {
  Request request = make_request(std::move(prompt), max_tokens);
  request.service_class = ServiceClass::kBestEffort;
  return request;
}

// Request 1 leaves the KV of `prompt` on the host, request 2 takes every block of the accelerator
// afterwards. Over by 200 ms.
void leave_on_the_host(VirtualWorld& world, const std::vector<TokenId>& prompt, int64_t blocks) {
  world.arrive(0ms, 1, best_effort(prompt, 6));
  world.arrive(100ms, 2, make_request(prompt_of(static_cast<int>(blocks) * kBlock - 3, 500), 2));
}

TEST(EngineFetch, APrefixThatOnlyTheHostHoldsIsCopiedAndCountsAsCached) {
  VirtualWorld world(offloading(16));
  leave_on_the_host(world, prompt_of(38), 16);
  std::vector<TokenId> prompt = prompt_of(38);
  prompt.push_back(777);
  const Request request = make_request(prompt, 8);
  world.arrive(200ms, 3, request);
  world.run_until_idle();
  EXPECT_EQ(world.outcome(3).tokens, expected_tokens(request, 0));
  EXPECT_EQ(world.outcome(3).cached_tokens, 36);
  EXPECT_EQ(world.executor().host().moved_blocks().back(), 9);
  expect_drained(world);
}

TEST(EngineFetch, WithoutAPrefixCacheNothingIsFetched) {
  WorldOptions options = offloading(16);
  options.engine.prefix_caching = PrefixCaching::kOff;
  VirtualWorld world(options);
  leave_on_the_host(world, prompt_of(38), 16);
  world.arrive(200ms, 3, make_request(prompt_of(38), 8));
  world.run_until_idle();
  EXPECT_EQ(world.outcome(3).cached_tokens, 0);
  EXPECT_EQ(world.executor().host().transfers(), 1);
  expect_drained(world);
}

TEST(EngineFetch, APromptWhoseScoresAreWantedIsComputedWhole) {
  VirtualWorld world(offloading(16));
  leave_on_the_host(world, prompt_of(38), 16);
  Request request = make_request(prompt_of(38), 2);
  request.sampling.prompt_logprobs = 0;
  world.arrive(200ms, 3, request);
  world.run_until_idle();
  EXPECT_EQ(world.outcome(3).cached_tokens, 0);
  EXPECT_EQ(world.outcome(3).prompt_logprobs.size(), 1U);
  expect_drained(world);
}

TEST(EngineFetch, TwoThatWantTheSamePrefixCopyItOnce) {
  VirtualWorld world(offloading(16));
  leave_on_the_host(world, prompt_of(20), 16);
  const Request request = make_request(prompt_of(20), 8);
  world.arrive(200ms, 3, request);
  world.arrive(200ms, 4, request);
  world.run_until_idle();
  for (const int64_t id : {3, 4}) {
    EXPECT_EQ(world.outcome(id).tokens, expected_tokens(request, 0));
    EXPECT_EQ(world.outcome(id).cached_tokens, 16);
  }
  EXPECT_EQ(world.executor().host().moved_blocks().back(), 4);
  expect_drained(world);
}

TEST(EngineFetch, WhatTheAcceleratorStillHasIsNotCopied) {
  VirtualWorld world(offloading(16));
  leave_on_the_host(world, prompt_of(38), 16);
  world.arrive(200ms, 3, make_request(prompt_of(18), 2));  // fetches four blocks
  const Request request = make_request(prompt_of(38), 8);
  world.arrive(300ms, 4, request);
  world.run_until_idle();
  EXPECT_EQ(world.outcome(3).cached_tokens, 16);
  EXPECT_EQ(world.outcome(4).tokens, expected_tokens(request, 0));
  EXPECT_EQ(world.outcome(4).cached_tokens, 36);
  EXPECT_EQ(world.executor().host().moved_blocks().back(), 5);
  expect_drained(world);
}

TEST(EngineFetch, OthersGoOnWhileItIsCopied) {
  WorldOptions options = offloading(32);
  options.executor.host.max_copy = 0ms;
  options.executor.host.seed = 3;
  VirtualWorld quick(options);
  options.executor.host.max_copy = 60ms;
  VirtualWorld slow(options);
  for (VirtualWorld* world : {&quick, &slow}) {
    leave_on_the_host(*world, prompt_of(38), 32);
    world->arrive(300ms, 3, make_request(prompt_of(38), 2));
    world->arrive(300ms, 4, make_request(prompt_of(5, 900), 2));
    world->run_until_idle();
    EXPECT_EQ(world->outcome(3).cached_tokens, 36);
    expect_drained(*world);
  }
  EXPECT_GT(slow.outcome(3).times.front(), slow.outcome(4).times.back());
  EXPECT_LE(slow.outcome(4).times.back(), quick.outcome(4).times.back());
}

// Only a hop of seconds is under way, so the accelerator is idle.
TEST(EngineFetch, APromptDoesNotWaitForAHopOnceItsPrefixIsThere) {
  WorldOptions options = offloading(16);
  options.executor.host.max_hops = 20s;
  VirtualWorld world(options);
  world.arrive(0ms, 1, best_effort(prompt_of(38), 6));
  world.arrive(200s, 2, make_request(prompt_of(61, 500), 2));
  world.arrive(300s, 3, best_effort(prompt_of(6, 900), 6));
  const Request request = make_request(prompt_of(38), 2);
  world.arrive(301s, 4, request);
  world.run_until_idle();
  EXPECT_EQ(world.outcome(4).tokens, expected_tokens(request, 0));
  EXPECT_EQ(world.outcome(4).cached_tokens, 36);
  EXPECT_LE(world.outcome(4).times.front(), 301s + 10ms);
  EXPECT_GT(world.outcome(3).times.back(), 301s + 1s);
  expect_drained(world);
}

TEST(EngineFetch, ACancelWhileItIsCopiedLeavesNothingBehind) {
  for (int at = 0; at < 80; ++at) {
    SCOPED_TRACE(at);
    WorldOptions options = offloading(16);
    options.executor.host.max_copy = 6ms;
    options.executor.host.seed = static_cast<uint64_t>(at);
    VirtualWorld world(options);
    leave_on_the_host(world, prompt_of(38), 16);
    world.arrive(200ms, 3, make_request(prompt_of(38), 8));
    world.cancel(200ms + 100us * at, 3);
    // Needs nearly all blocks, so it would be wrong if any were given away too early.
    const Request next = make_request(prompt_of(50, 300), 6);
    world.arrive(201ms, 4, next);
    world.run_until_idle();
    EXPECT_EQ(world.outcome(3).finishes, 1);
    EXPECT_EQ(world.outcome(4).tokens, expected_tokens(next, 0));
    expect_drained(world);
  }
}

TEST(EngineFetch, WhereTheAcceleratorIsTooFullItWaitsForRoomFirst) {
  VirtualWorld world(offloading(16));
  leave_on_the_host(world, prompt_of(38), 16);
  const Request hog = make_request(prompt_of(30, 300), 20);
  world.arrive(199ms, 3, hog);
  const Request request = make_request(prompt_of(38), 8);
  world.arrive(201ms, 4, request);
  world.run_until_idle();
  EXPECT_EQ(world.outcome(3).tokens, expected_tokens(hog, 0));
  EXPECT_EQ(world.outcome(4).tokens, expected_tokens(request, 0));
  EXPECT_EQ(world.outcome(4).cached_tokens, 36);
  EXPECT_EQ(world.preemptions(), 0);
  expect_drained(world);
}

TEST(EngineFetch, ItIsComputedWhereThatIsSooner) {
  for (const bool slow_link : {false, true}) {
    WorldOptions options = offloading(16);
    options.executor.per_token = 10us;  // so 36 tokens take 360 us
    options.engine.from_host = {.alpha_nanos = 20e3, .beta_nanos = slow_link ? 41e3 : 37e3};
    VirtualWorld world(options);
    leave_on_the_host(world, prompt_of(38), 16);
    const Request request = make_request(prompt_of(38), 8);
    world.arrive(200ms, 3, request);
    world.run_until_idle();
    EXPECT_EQ(world.outcome(3).tokens, expected_tokens(request, 0));
    EXPECT_EQ(world.outcome(3).cached_tokens, slow_link ? 0 : 36);
    expect_drained(world);
  }
}

}  // namespace
}  // namespace tandem
