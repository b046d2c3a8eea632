#include "engine/engine.h"

#include <gtest/gtest.h>

#include <random>

#include "support/two_tier_world.h"
#include "support/virtual_world.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;
using testing::expected_tokens;
using testing::make_request;
using testing::Outcome;
using testing::prompt_of;
using testing::VirtualWorld;
using testing::WorldOptions;

WorldOptions small_world(std::string policy, int64_t blocks = 32) {
  WorldOptions options;
  options.policy = std::move(policy);
  options.policy_options[kSarathiTokenBudget] = 12;
  options.executor.limits.total_blocks = blocks;
  return options;
}

class EngineWithPolicy : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Policies, EngineWithPolicy, ::testing::Values("accel_only", "sarathi"),
                         [](const auto& test) { return test.param; });

TEST_P(EngineWithPolicy, OneRequestIsAnsweredInFull) {
  VirtualWorld world(small_world(GetParam()));
  const Request request = make_request(prompt_of(30), 9);
  world.arrive(0ms, 1, request);
  world.run_until_idle();
  EXPECT_EQ(world.outcome(1).tokens, expected_tokens(request, 0));
  EXPECT_EQ(world.outcome(1).reason, FinishReason::kLength);
  EXPECT_EQ(world.engine().kv().free_blocks(), 32);
}

TEST_P(EngineWithPolicy, ASecondRequestReusesThePrefixAndAnswersTheSame) {
  VirtualWorld world(small_world(GetParam()));
  const Request request = make_request(prompt_of(30), 9);
  world.arrive(0ms, 1, request);
  world.arrive(50ms, 2, request);
  world.run_until_idle();
  EXPECT_EQ(world.outcome(2).cached_tokens, 28);
  EXPECT_EQ(world.outcome(2).tokens, world.outcome(1).tokens);
}

TEST_P(EngineWithPolicy, AnswersOfAnotherTenantAreNotReused) {
  VirtualWorld world(small_world(GetParam()));
  Request request = make_request(prompt_of(30), 2);
  world.arrive(0ms, 1, request);
  request.tenant = "other";
  world.arrive(50ms, 2, request);
  world.run_until_idle();
  EXPECT_EQ(world.outcome(2).cached_tokens, 0);
}

// What the echo executor reports of a prompt's tokens.
std::vector<float> expected_scores(const std::vector<TokenId>& prompt) {
  std::vector<float> scores;
  for (size_t i = 1; i < prompt.size(); ++i) {
    scores.push_back(-static_cast<float>(prompt[i]));
  }
  return scores;
}

TEST_P(EngineWithPolicy, APromptIsScoredOnceInChunksAndAlthoughItIsCached) {
  VirtualWorld world(small_world(GetParam()));
  Request request = make_request(prompt_of(30), 4);
  world.arrive(0ms, 1, request);
  request.sampling.prompt_logprobs = 0;
  request.n = 3;
  world.arrive(50ms, 2, request);
  world.run_until_idle();
  EXPECT_TRUE(world.outcome(1).prompt_logprobs.empty());
  ASSERT_EQ(world.outcome(2).prompt_logprobs.size(), 1U);
  EXPECT_EQ(world.outcome(2).prompt_logprobs[0], expected_scores(request.prompt));
  EXPECT_EQ(world.outcome(2).cached_tokens, 0);
  EXPECT_TRUE(world.outcome(2, 1).prompt_logprobs.empty());
  EXPECT_EQ(world.outcome(2, 0).tokens, world.outcome(1).tokens);
  EXPECT_EQ(world.outcome(2, 2).tokens, expected_tokens(request, 2));
  EXPECT_EQ(world.engine().kv().free_blocks(), 32);
}

TEST_P(EngineWithPolicy, APromptOfOneTokenHasNoScores) {
  VirtualWorld world(small_world(GetParam()));
  Request request = make_request(prompt_of(1), 1);
  request.sampling.prompt_logprobs = 2;
  world.arrive(0ms, 1, request);
  world.run_until_idle();
  ASSERT_EQ(world.outcome(1).prompt_logprobs.size(), 1U);
  EXPECT_TRUE(world.outcome(1).prompt_logprobs[0].empty());
}

TEST_P(EngineWithPolicy, PromptsAreScoredOnceAlsoWhereSequencesAreRecomputed) {
  VirtualWorld world(small_world(GetParam(), 10));
  for (int64_t id = 1; id <= 4; ++id) {
    Request request =
        make_request(prompt_of(14, static_cast<TokenId>(id * 100)), 17, static_cast<uint64_t>(id));
    request.sampling.prompt_logprobs = 1;
    world.arrive(0ms, id, request);
  }
  world.run_until_idle();
  EXPECT_GT(world.preemptions(), 0);
  for (int64_t id = 1; id <= 4; ++id) {
    ASSERT_EQ(world.outcome(id).prompt_logprobs.size(), 1U) << id;
    EXPECT_EQ(world.outcome(id).prompt_logprobs[0],
              expected_scores(prompt_of(14, static_cast<TokenId>(id * 100))));
    EXPECT_EQ(world.outcome(id).tokens.size(), 17U);
  }
}

TEST_P(EngineWithPolicy, SeveralChoicesShareThePromptAndDifferByTheirSeed) {
  VirtualWorld world(small_world(GetParam()));
  Request request = make_request(prompt_of(18), 7);
  request.n = 4;
  world.arrive(0ms, 1, request);
  world.run_until_idle();
  for (int32_t choice = 0; choice < 4; ++choice) {
    EXPECT_EQ(world.outcome(1, choice).tokens, expected_tokens(request, choice)) << choice;
    EXPECT_EQ(world.outcome(1, choice).finishes, 1);
  }
  EXPECT_EQ(world.engine().kv().free_blocks(), 32);
}

TEST_P(EngineWithPolicy, WhenBlocksRunOutTheNewestAreRecomputedAndNothingChangesInTheText) {
  VirtualWorld world(small_world(GetParam(), 10));
  std::vector<Request> requests;
  for (int64_t id = 1; id <= 4; ++id) {
    requests.push_back(
        make_request(prompt_of(6, static_cast<TokenId>(id * 100)), 25, static_cast<uint64_t>(id)));
    world.arrive(0ms, id, requests.back());
  }
  world.run_until_idle();
  EXPECT_GT(world.preemptions(), 0);
  for (int64_t id = 1; id <= 4; ++id) {
    EXPECT_EQ(world.outcome(id).tokens, expected_tokens(requests[static_cast<size_t>(id) - 1], 0))
        << id;
  }
}

TEST_P(EngineWithPolicy, ASequenceAsLongAsThePoolFinishesAlone) {
  VirtualWorld world(small_world(GetParam(), 8));
  const Request request = make_request(prompt_of(20), 12);  // 32 tokens: all 8 blocks
  world.arrive(0ms, 1, request);
  world.arrive(0ms, 2, make_request(prompt_of(20, 500), 12));
  world.run_until_idle();
  EXPECT_EQ(world.outcome(1).tokens.size(), 12U);
  EXPECT_EQ(world.outcome(2).tokens.size(), 12U);
}

TEST_P(EngineWithPolicy, CancelEndsARequestInEveryPhase) {
  for (const Nanos at : {0ns, Nanos(500us), Nanos(2ms), Nanos(9ms), Nanos(40ms)}) {
    VirtualWorld world(small_world(GetParam()));
    Request request = make_request(prompt_of(60), 20);
    request.n = 2;
    world.arrive(0ms, 1, request);
    world.arrive(0ms, 2, make_request(prompt_of(5, 300), 5));
    world.cancel(at, 1);
    world.run_until_idle();
    EXPECT_EQ(world.outcome(1, 0).finishes, 1);
    EXPECT_EQ(world.outcome(1, 1).finishes, 1);
    EXPECT_EQ(world.outcome(2).reason, FinishReason::kLength);
    EXPECT_EQ(world.engine().kv().free_blocks(), 32);
    EXPECT_EQ(world.engine().load().running, 0);
  }
}

TEST_P(EngineWithPolicy, AStopStringEndsOneChoiceOnly) {
  VirtualWorld world(small_world(GetParam()));
  Request request = make_request(prompt_of(8), 30);
  request.n = 2;
  world.arrive(0ms, 1, request);
  world.stop(6ms, 1, 1);
  world.run_until_idle();
  EXPECT_EQ(world.outcome(1, 1).reason, FinishReason::kStop);
  EXPECT_LT(world.outcome(1, 1).tokens.size(), 30U);
  EXPECT_EQ(world.outcome(1, 0).tokens.size(), 30U);
}

TEST_P(EngineWithPolicy, AStopIdEndsTheTextWithoutItselfButNotBeforeMinTokens) {
  Request request = make_request(prompt_of(8), 10);
  const std::vector<TokenId> free_run = expected_tokens(request, 0);
  request.sampling.stop_token_ids = {free_run[3]};
  {
    VirtualWorld world(small_world(GetParam()));
    world.arrive(0ms, 1, request);
    world.run_until_idle();
    EXPECT_EQ(world.outcome(1).reason, FinishReason::kStop);
    EXPECT_EQ(world.outcome(1).tokens, std::vector(free_run.begin(), free_run.begin() + 3));
  }
  request.sampling.min_tokens = 6;
  VirtualWorld world(small_world(GetParam()));
  world.arrive(0ms, 1, request);
  world.run_until_idle();
  EXPECT_GE(world.outcome(1).tokens.size(), 6U);
}

TEST_P(EngineWithPolicy, NoMoreRunAtATimeThanMayAndAllAreAnswered) {
  WorldOptions options = small_world(GetParam(), 400);
  options.engine.max_running = 3;
  VirtualWorld world(options);
  for (int64_t id = 1; id <= 20; ++id) {
    world.arrive(0ms, id, make_request(prompt_of(9, static_cast<TokenId>(id * 50)), 4));
  }
  world.run_until_idle();
  for (int64_t id = 1; id <= 20; ++id) {
    EXPECT_EQ(world.outcome(id).finishes, 1) << id;
  }
}

// Random traffic on a small pool: every request ends exactly once, with the text it would have had
// alone, and all blocks return.
TEST_P(EngineWithPolicy, RandomTrafficIsAnsweredAsIfEachRequestWereAlone) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    std::mt19937_64 random(seed);
    VirtualWorld world(small_world(GetParam(), 12 + static_cast<int64_t>(random() % 20)));
    std::map<int64_t, Request> requests;
    std::map<int64_t, bool> cut;
    for (int64_t id = 1; id <= 25; ++id) {
      Request request = make_request(
          prompt_of(1 + static_cast<int>(random() % 24), static_cast<TokenId>(random() % 3)),
          1 + static_cast<int32_t>(random() % 20), random() % 5);
      request.n = 1 + static_cast<int32_t>(random() % 3);
      const Nanos at = std::chrono::microseconds(random() % 40000);
      world.arrive(at, id, request);
      if (random() % 5 == 0) {
        world.cancel(at + std::chrono::microseconds(random() % 20000), id);
        cut[id] = true;
      }
      requests[id] = std::move(request);
    }
    world.run_until_idle();
    for (const auto& [id, request] : requests) {
      for (int32_t choice = 0; choice < request.n; ++choice) {
        const Outcome& outcome = world.outcome(id, choice);
        ASSERT_EQ(outcome.finishes, 1) << "seed " << seed << " request " << id;
        std::vector<TokenId> expected = expected_tokens(request, choice);
        if (cut[id]) {
          ASSERT_LE(outcome.tokens.size(), expected.size());
          expected.resize(outcome.tokens.size());
        }
        ASSERT_EQ(outcome.tokens, expected)
            << "seed " << seed << " request " << id << " choice " << choice;
      }
    }
    ASSERT_EQ(world.engine().kv().free_blocks(), world.engine().kv().total_blocks());
    const Status books = world.engine().audit();
    ASSERT_TRUE(books.ok()) << books.error().message;
  }
}

}  // namespace
}  // namespace tandem
