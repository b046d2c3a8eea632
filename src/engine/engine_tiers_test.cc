#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "engine/engine.h"
#include "scheduler/plan_builder.h"
#include "support/virtual_world.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;
using testing::expected_tokens;
using testing::make_request;
using testing::Outcome;
using testing::VirtualWorld;
using testing::WorldOptions;

std::vector<TokenId> prompt_of(int length, TokenId first = 10) {
  std::vector<TokenId> prompt(static_cast<size_t>(length));
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

struct Dice {
  uint64_t seed = 1;
  int offload = 30;  // of 100, for each running sequence that could go
  int onload = 20;   // of 100, for each parked one
  int drop = 2;      // of 100, for each parked one
  int preempt = 2;   // of 100, for each running one
  bool only_decodes = false;
};

// Does whatever is legal, by chance, and otherwise what everybody does: the oldest goes on.
class ChancePolicy final : public StepPolicy {
 public:
  explicit ChancePolicy(const Dice& dice) : dice_(dice), random_(dice.seed) {}
  [[nodiscard]] std::string_view name() const override { return "chance"; }
  [[nodiscard]] QueueOrder queue_order() const override {
    return dice_.seed % 2 == 0 ? QueueOrder::kArrival : QueueOrder::kClassFirst;
  }

  StepPlan plan(const SystemView& view) override {
    PlanBuilder builder(view);
    const bool moves = move_offloaded(view, builder);
    fates_.assign(view.running.size(), Fate::kOpen);
    for (size_t i = 0; i < view.running.size(); ++i) {
      send_away(view.running[i], fates_[i], builder);
    }
    for (size_t i = 0; i < view.running.size(); ++i) {
      go_on(view, i, builder);
    }
    if (builder.preempts()) {
      return builder.finish();
    }
    for (const SequenceView& sequence : view.waiting) {
      const int32_t tokens = std::min(sequence.pending_tokens(), builder.tokens_left());
      if (tokens < 1 || builder.admit(sequence, tokens) != Fit::kFits) {
        break;
      }
    }
    StepPlan plan = builder.finish();
    if (!moves && plan.slices.empty() && plan.offload.empty()) {
      for (const SequenceView& sequence : view.offloaded) {
        if (sequence.state == SequenceState::kSwapped) {  // nobody else will make room for it
          plan.preempt.push_back(sequence.id);
          break;
        }
      }
    }
    return plan;
  }

 private:
  enum class Fate : uint8_t { kOpen, kGone, kPlanned };
  bool chance(int of_hundred) { return static_cast<int>(random_() % 100) < of_hundred; }

  bool move_offloaded(const SystemView& view, PlanBuilder& builder) {
    bool any = false;
    for (const SequenceView& sequence : view.offloaded) {
      const bool parked = sequence.state == SequenceState::kParkedWaiting;
      if ((parked || sequence.state == SequenceState::kSwapped) &&
          chance(parked ? dice_.onload : 80)) {
        any |= builder.onload(sequence) == Fit::kFits;
      } else if ((parked || sequence.state == SequenceState::kParkedInFlight) &&
                 chance(dice_.drop)) {
        builder.preempt(sequence);
        any = true;
      }
    }
    return any;
  }

  void send_away(const SequenceView& sequence, Fate& fate, PlanBuilder& builder) {
    const bool could = sequence.computed_tokens > 0 && sequence.held_blocks > 0 &&
                       (sequence.decodes() || !dice_.only_decodes);
    if (could && chance(dice_.offload)) {
      fate = builder.offload(sequence) == Fit::kFits ? Fate::kGone : Fate::kOpen;
    } else if (chance(dice_.preempt)) {
      builder.preempt(sequence);
      fate = Fate::kGone;
    }
  }

  void go_on(const SystemView& view, size_t index, PlanBuilder& builder) {
    if (fates_[index] != Fate::kOpen) {
      return;
    }
    const SequenceView& sequence = view.running[index];
    const int32_t tokens = std::min({sequence.pending_tokens(), builder.tokens_left(),
                                     1 + static_cast<int32_t>(random_() % 30)});
    if (tokens < 1) {
      return;
    }
    Fit fit = builder.add(sequence, tokens);
    for (size_t victim = view.running.size(); fit == Fit::kNoBlocks && victim-- > index;) {
      if (fates_[victim] == Fate::kOpen) {
        builder.preempt(view.running[victim]);
        fates_[victim] = Fate::kGone;
        if (victim == index) {
          return;
        }
        fit = builder.add(sequence, tokens);
      }
    }
    fates_[index] = fit == Fit::kFits ? Fate::kPlanned : fates_[index];
  }

  Dice dice_;
  std::mt19937_64 random_;
  std::vector<Fate> fates_;
};

WorldOptions two_tiers(const Dice& dice, int64_t blocks = 32, int64_t host_blocks = 64,
                       int32_t places = 16) {
  WorldOptions options;
  options.make_policy = [dice] { return std::make_unique<ChancePolicy>(dice); };
  options.executor.limits.total_blocks = blocks;
  options.executor.limits.host_blocks = host_blocks;
  options.executor.limits.offloaded_sequences = places;
  options.executor.host.seed = dice.seed;
  options.audit = WorldOptions::Audit::kEachAdvance;
  return options;
}

void expect_drained(VirtualWorld& world) {
  const KvManager& kv = world.engine().kv();
  EXPECT_EQ(kv.free_blocks(), kv.total_blocks());
  EXPECT_EQ(kv.free_blocks(Tier::kHost) + kv.blocks_out_of_use(Tier::kHost),
            kv.total_blocks(Tier::kHost));
  EXPECT_EQ(world.engine().load().running, 0);
  EXPECT_TRUE(world.executor().host().drained());
}

TEST(EngineTiers, AnOffloadedSequenceAnswersAsIfItHadStayed) {
  Dice dice;
  dice.offload = 100;
  dice.onload = dice.drop = dice.preempt = 0;
  dice.only_decodes = true;
  VirtualWorld world(two_tiers(dice));
  const Request request = make_request(prompt_of(30), 40);
  world.arrive(0ms, 1, request);
  world.run_until_idle();
  EXPECT_EQ(world.outcome(1).tokens, expected_tokens(request, 0));
  EXPECT_EQ(world.outcome(1).finishes, 1);
  EXPECT_EQ(world.executor().host().transfers(), 1);
  EXPECT_EQ(world.executor().host().entered(), 39);
  expect_drained(world);
}

TEST(EngineTiers, ChoicesAreOffloadedOneByOneAndShareWhatTheyShare) {
  Dice dice;
  dice.offload = 50;
  dice.onload = 10;
  dice.only_decodes = true;
  VirtualWorld world(two_tiers(dice));
  Request request = make_request(prompt_of(18), 20);
  request.n = 4;
  world.arrive(0ms, 1, request);
  world.run_until_idle();
  for (int32_t choice = 0; choice < 4; ++choice) {
    EXPECT_EQ(world.outcome(1, choice).tokens, expected_tokens(request, choice)) << choice;
  }
  expect_drained(world);
}

TEST(EngineTiers, StopIdsMinTokensAndMaxTokensHoldForOffloadedSequences) {
  Dice dice;
  dice.offload = 100;
  dice.onload = dice.drop = dice.preempt = 0;
  Request request = make_request(prompt_of(8), 12);
  const std::vector<TokenId> free_run = expected_tokens(request, 0);
  request.sampling.stop_token_ids = {free_run[5]};
  {
    VirtualWorld world(two_tiers(dice));
    world.arrive(0ms, 1, request);
    world.run_until_idle();
    EXPECT_EQ(world.outcome(1).reason, FinishReason::kStop);
    EXPECT_EQ(world.outcome(1).tokens, std::vector(free_run.begin(), free_run.begin() + 5));
    expect_drained(world);
  }
  request.sampling.min_tokens = 9;
  VirtualWorld world(two_tiers(dice));
  world.arrive(0ms, 1, request);
  world.run_until_idle();
  EXPECT_GE(world.outcome(1).tokens.size(), 9U);
  expect_drained(world);
}

TEST(EngineTiers, CancelAndStopEndASequenceInEveryStateAndNothingStaysBehind) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Dice dice;
    dice.seed = seed;
    VirtualWorld world(two_tiers(dice));
    Request request = make_request(prompt_of(25), 30, seed);
    request.n = 2;
    world.arrive(0ms, 1, request);
    const Request other = make_request(prompt_of(25), 12, 5);
    world.arrive(1ms, 2, other);
    const Nanos at = std::chrono::microseconds(seed * 700);
    if (seed % 2 == 0) {
      world.cancel(at, 1);
    } else {
      world.stop(at, 1, 0);
      world.stop(at + 5ms, 1, 1);
    }
    world.run_until_idle();
    EXPECT_EQ(world.outcome(1, 0).finishes, 1);
    EXPECT_EQ(world.outcome(1, 1).finishes, 1);
    EXPECT_EQ(world.outcome(2).tokens, expected_tokens(other, 0));
    expect_drained(world);
  }
}

TEST(EngineTiers, AHostThatAlwaysFailsCostsTheRequestAfterABoundedNumberOfTries) {
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

TEST(EngineTiers, AFailureOnceInAWhileChangesNothingInTheText) {
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

TEST(EngineTiers, WhatALostWorkerMayStillWriteToIsGivenToNobody) {
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

TEST(EngineTiers, AHostThatFailsAgainAndAgainIsLeftAloneForAWhileAndThenTriedAgain) {
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

TEST(EngineTiers, WhatTheHostFailedComesBackWithItsKvWhereThereIsRoom) {
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
  options.policy_options.piggyback.offload_below = 100;
  options.policy_options.piggyback.onload_above = 100;
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

TEST(EngineTiers, StepsTakeExactlyAsLongWithTheHostFrozenAsWithoutGuests) {
  EXPECT_EQ(times_beside(true), times_beside(false));
}

TEST(EngineTiers, AHostPoolSmallerThanASequenceIsLeftAgain) {
  for (const int64_t host_blocks : {1, 2, 3, 5}) {
    Dice dice;
    dice.offload = 100;
    dice.onload = dice.drop = dice.preempt = 0;
    dice.only_decodes = true;
    VirtualWorld world(two_tiers(dice, 32, host_blocks));
    const Request request = make_request(prompt_of(3), 40);
    const Request other = make_request(prompt_of(5, 70), 40);
    world.arrive(0ms, 1, request);
    world.arrive(0ms, 2, other);
    world.run_until_idle();
    EXPECT_EQ(world.outcome(1).tokens, expected_tokens(request, 0)) << host_blocks;
    EXPECT_EQ(world.outcome(2).tokens, expected_tokens(other, 0)) << host_blocks;
    expect_drained(world);
  }
}

TEST(EngineTiers, MoreOffloadedSequencesThanPlacesWaitTheirTurn) {
  Dice dice;
  dice.offload = 100;
  dice.onload = dice.drop = dice.preempt = 0;
  VirtualWorld world(two_tiers(dice, 32, 200, 2));
  for (int64_t id = 1; id <= 9; ++id) {
    world.arrive(0ms, id, make_request(prompt_of(9, static_cast<TokenId>(id * 50)), 14));
  }
  world.run_until_idle();
  for (int64_t id = 1; id <= 9; ++id) {
    EXPECT_EQ(world.outcome(id).tokens.size(), 14U) << id;
  }
  expect_drained(world);
}

// The one property that matters, over random schedules, delays, pools, cancels, stops, choices,
// shared prefixes and failures: every request ends once, with the text that it would have had alone
// on one tier; nothing stays behind.
enum class Driver : uint8_t { kChance, kPiggyback };

struct Seen {
  int64_t transfers = 0;
  int64_t tokens = 0;
  int64_t failures = 0;
  int64_t preemptions = 0;
};

Seen run_random_traffic(uint64_t seed, Driver driver) {
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  Dice dice;
  dice.seed = seed;
  dice.offload = static_cast<int>(random() % 101);
  dice.onload = static_cast<int>(random() % 60);
  dice.drop = static_cast<int>(random() % 5);
  dice.preempt = static_cast<int>(random() % 5);
  dice.only_decodes = random() % 2 == 0;
  const auto blocks =
      static_cast<int64_t>(random() % 4 == 0 ? 2 + random() % 3 : 12 + random() % 20);
  const auto host_blocks = static_cast<int64_t>(1 + random() % (random() % 2 == 0 ? 4 : 60));
  WorldOptions options =
      two_tiers(dice, blocks, host_blocks, 1 + static_cast<int32_t>(random() % 12));
  if (driver == Driver::kPiggyback) {
    options.make_policy = {};
    options.policy = "piggyback";
    PiggybackOptions& piggyback = options.policy_options.piggyback;
    piggyback.token_budget = 1 + static_cast<int32_t>(random() % 40);
    piggyback.offload_below = static_cast<int32_t>(random() % 101);
    piggyback.onload_above =
        piggyback.offload_below +
        static_cast<int32_t>(random() % static_cast<uint64_t>(101 - piggyback.offload_below));
  }
  options.executor.host.max_hops = std::chrono::microseconds(random() % 30000);
  options.executor.host.max_copy = std::chrono::microseconds(random() % 8000);
  options.executor.host.failures_per_thousand = random() % 3 == 0 ? 20 : 0;
  options.executor.host.lost_per_thousand = 300;
  options.engine.max_host_failures = 1000;
  options.engine.prefix_caching = random() % 5 == 0 ? PrefixCaching::kOff : PrefixCaching::kOn;
  VirtualWorld world(options);
  const int64_t pool_tokens = blocks * options.executor.limits.block_tokens;
  std::map<int64_t, Request> requests;
  std::map<int64_t, bool> cut;
  for (int64_t id = 1; id <= 20; ++id) {
    const auto prompt = static_cast<int64_t>(
        1 + random() % static_cast<uint64_t>(std::min<int64_t>(24, pool_tokens / 2)));
    const auto room = static_cast<uint64_t>(std::min<int64_t>(25, pool_tokens - prompt));
    Request request =
        make_request(prompt_of(static_cast<int>(prompt), static_cast<TokenId>(random() % 3)),
                     1 + static_cast<int32_t>(random() % room), random() % 5);
    request.n = 1 + static_cast<int32_t>(random() % 3);
    request.service_class =
        random() % 2 == 0 ? ServiceClass::kBestEffort : ServiceClass::kLatencySensitive;
    const Nanos at = std::chrono::microseconds(random() % 60000);
    world.arrive(at, id, request);
    if (random() % 4 == 0) {
      const Nanos end = at + std::chrono::microseconds(random() % 60000);
      random() % 2 == 0 ? world.cancel(end, id) : world.stop(end, id, 0);
      cut[id] = true;
    }
    requests[id] = std::move(request);
  }
  world.run_until_idle();
  for (const auto& [id, request] : requests) {
    for (int32_t choice = 0; choice < request.n; ++choice) {
      const Outcome& outcome = world.outcome(id, choice);
      EXPECT_EQ(outcome.finishes, 1) << "request " << id;
      std::vector<TokenId> expected = expected_tokens(request, choice);
      if (cut[id]) {
        EXPECT_LE(outcome.tokens.size(), expected.size());
        expected.resize(std::min(outcome.tokens.size(), expected.size()));
      }
      EXPECT_EQ(outcome.tokens, expected) << "request " << id << " choice " << choice;
    }
  }
  expect_drained(world);
  const testing::EchoHost& host = world.executor().host();
  return {host.transfers(), host.entered(), host.failures(), world.preemptions()};
}

class RandomTraffic : public ::testing::TestWithParam<Driver> {};
INSTANTIATE_TEST_SUITE_P(Drivers, RandomTraffic,
                         ::testing::Values(Driver::kChance, Driver::kPiggyback),
                         [](const auto& test) {
                           return test.param == Driver::kChance ? "chance" : "piggyback";
                         });

TEST_P(RandomTraffic, OverTwoTiersIsAnsweredAsIfEachRequestWereAlone) {
  Seen all;
  for (uint64_t seed = 1; seed <= 150 && !::testing::Test::HasFailure(); ++seed) {
    const Seen seen = run_random_traffic(seed, GetParam());
    all.transfers += seen.transfers;
    all.tokens += seen.tokens;
    all.failures += seen.failures;
    all.preemptions += seen.preemptions;
  }
  EXPECT_GT(all.transfers, 1000);
  EXPECT_GT(all.tokens, 2000);
  EXPECT_GT(all.failures, 10);
  EXPECT_GT(all.preemptions, 100);
}

}  // namespace
}  // namespace tandem
