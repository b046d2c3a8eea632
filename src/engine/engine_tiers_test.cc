#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "support/two_tier_world.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;
using testing::Dice;
using testing::expect_drained;
using testing::expected_tokens;
using testing::make_request;
using testing::Outcome;
using testing::prompt_of;
using testing::two_tiers;
using testing::VirtualWorld;
using testing::WorldOptions;

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

// A best-effort prompt of 15 blocks, four of which are computed in a step, then offloaded.
WorldOptions prompt_in_pieces(PrefixCaching caching) {
  WorldOptions options = two_tiers({});
  options.make_policy = {};
  options.policy = "piggyback";
  options.policy_options[kPiggybackTokenBudget] = 16;
  options.policy_options[kOffloadBelow] = 100;
  options.policy_options[kOnloadAbove] = 100;
  options.engine.prefix_caching = caching;
  options.executor.host.max_copy = 100us;  // shorter than a step
  return options;
}

TEST(EngineTiers, APromptIsWrittenToTheHostBehindItsComputationAndAnOffloadCopiesTheRest) {
  Request request = make_request(prompt_of(60), 20);
  request.service_class = ServiceClass::kBestEffort;
  VirtualWorld world(prompt_in_pieces(PrefixCaching::kOn));
  world.arrive(0ms, 1, request);
  world.run_until_idle();
  EXPECT_EQ(world.outcome(1).tokens, expected_tokens(request, 0));
  EXPECT_EQ(world.executor().host().moved_blocks(), (std::vector<int64_t>{4, 4, 4, 3}));
  expect_drained(world);
  VirtualWorld without(prompt_in_pieces(PrefixCaching::kOff));
  without.arrive(0ms, 1, request);
  without.run_until_idle();
  EXPECT_EQ(without.outcome(1).tokens, expected_tokens(request, 0));
  EXPECT_EQ(without.executor().host().moved_blocks(), (std::vector<int64_t>{15}));
}

// As another policy, but every plan that computes anything holds all offloaded sequences.
class HoldingPolicy final : public StepPolicy {
 public:
  explicit HoldingPolicy(StepPolicy& policy) : policy_(policy) {}
  [[nodiscard]] std::string_view name() const override { return policy_.name(); }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override {
    return policy_.make_queue_order();
  }
  StepPlan plan(const SystemView& view) override {
    StepPlan plan = policy_.plan(view);
    for (const SequenceView& sequence : view.offloaded) {
      if (!plan.slices.empty()) {
        plan.hold.push_back(sequence.id);
      }
    }
    return plan;
  }

 private:
  StepPolicy& policy_;
};

TEST(EngineTiers, NoSequenceIsHeldForMoreThanTheBound) {
  constexpr int32_t kGuestTokens = 5;
  constexpr int32_t kTokens = (kGuestTokens - 1) * (kMaxHeldPlans + 100) + 200;
  WorldOptions options = two_tiers({}, 1600);
  options.make_policy = {};
  options.policy = "piggyback";
  options.policy_options[kOffloadBelow] = 100;
  options.policy_options[kOnloadAbove] = 100;
  options.watch_policy = [](StepPolicy& policy) { return std::make_unique<HoldingPolicy>(policy); };
  Request guest = make_request(prompt_of(5), kGuestTokens);
  guest.service_class = ServiceClass::kBestEffort;
  const Request resident = make_request(prompt_of(5, 500), kTokens);
  VirtualWorld world(options);
  world.arrive(0ms, 1, guest);
  world.arrive(0ms, 2, resident);
  world.run_until_idle();
  EXPECT_EQ(world.outcome(1).tokens, expected_tokens(guest, 0));
  const std::vector<Nanos>& steps = world.outcome(2).times;
  ASSERT_EQ(steps.size(), static_cast<size_t>(kTokens));
  const std::vector<Nanos>& tokens = world.outcome(1).times;
  ASSERT_EQ(tokens.size(), static_cast<size_t>(kGuestTokens));
  for (int32_t i = 1; i < kGuestTokens; ++i) {
    EXPECT_GT(tokens[i], steps[i * kMaxHeldPlans]) << "token " << i << " was held";
    EXPECT_LT(tokens[i], steps[i * (kMaxHeldPlans + 100)]) << i;
  }
  EXPECT_EQ(world.let_in(), kGuestTokens - 1);
  expect_drained(world);
}

TEST(EngineTiers, ASequenceMayEndWhileItsPromptIsStillBeingWrittenToTheHost) {
  for (int at = 0; at < 60; ++at) {
    SCOPED_TRACE(at);
    WorldOptions options = prompt_in_pieces(PrefixCaching::kOn);
    options.executor.host.max_copy = 20ms;
    options.executor.limits.total_blocks = 20;
    VirtualWorld world(options);
    Request request = make_request(prompt_of(60), 20);
    request.service_class = ServiceClass::kBestEffort;
    world.arrive(0ms, 1, request);
    world.cancel(std::chrono::microseconds(200 * at), 1);
    Request next = make_request(prompt_of(50, 300), 12);
    next.service_class = ServiceClass::kBestEffort;
    world.arrive(1ms, 2, next);
    world.run_until_idle();
    EXPECT_EQ(world.outcome(1).finishes, 1);
    EXPECT_EQ(world.outcome(2).tokens, expected_tokens(next, 0));
    expect_drained(world);
  }
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

// Looks at the stages and lanes that a policy is shown.
class StageWatch final : public StepPolicy {
 public:
  StageWatch(StepPolicy& policy, bool reads, std::map<int32_t, int64_t>& seen, int64_t& moved)
      : policy_(policy), reads_(reads), seen_(seen), moved_(moved) {}
  [[nodiscard]] std::string_view name() const override { return policy_.name(); }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override {
    return policy_.make_queue_order();
  }
  [[nodiscard]] bool reads_stages() const override { return reads_; }
  StepPlan plan(const SystemView& view) override {
    for (const std::span<const SequenceView> sequences : {view.running, view.waiting}) {
      for (const SequenceView& sequence : sequences) {
        EXPECT_EQ(sequence.stage, -1);
      }
    }
    const std::map<SequenceId, Place> before = std::exchange(places_, {});
    for (const SequenceView& sequence : view.offloaded) {
      look_at(sequence, before);
    }
    last_ = policy_.plan(view);
    return last_;
  }

 private:
  struct Place {
    int32_t known_tokens = 0;
    int32_t stage = -1;
    uint8_t lane = 0;
  };

  void look_at(const SequenceView& sequence, const std::map<SequenceId, Place>& before) {
    const bool is_under_way = sequence.state == SequenceState::kParkedInFlight;
    EXPECT_EQ(sequence.stage >= 0, is_under_way && reads_);
    ++seen_[sequence.stage];
    const auto place = before.find(sequence.id);
    if (place != before.end() && place->second.known_tokens == sequence.known_tokens &&
        place->second.stage >= 0 && is_under_way) {
      EXPECT_GE(sequence.stage, place->second.stage) << "a token went back";
      const auto move = std::ranges::find(last_.lane_moves, sequence.id, &LaneMove::sequence);
      const bool is_moved = move != last_.lane_moves.end();
      EXPECT_EQ(sequence.lane, is_moved ? move->lane : place->second.lane)
          << "a token changed its lane, or did not";
      moved_ += is_moved && sequence.lane != place->second.lane ? 1 : 0;
    } else if (is_under_way && reads_) {
      const bool has_lanes = last_.mode == StepMode::kLanes;
      const bool is_named =
          std::ranges::count(has_lanes ? last_.first_lane : last_.second_lane, sequence.id) > 0;
      EXPECT_EQ(sequence.lane, is_named == has_lanes ? 0 : 1) << "it has just entered";
    }
    places_[sequence.id] = {
        .known_tokens = sequence.known_tokens, .stage = sequence.stage, .lane = sequence.lane};
  }

  StepPolicy& policy_;
  const bool reads_;
  std::map<int32_t, int64_t>& seen_;
  int64_t& moved_;
  std::map<SequenceId, Place> places_;
  StepPlan last_;
};

TEST(EngineTiers, StagesAreShownToPoliciesThatReadThem) {
  for (const bool reads : {false, true}) {
    std::map<int32_t, int64_t> seen;
    int64_t moved = 0;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
      SCOPED_TRACE(seed);
      Dice dice;
      dice.seed = seed;
      dice.anything = true;
      WorldOptions options = two_tiers(dice);
      options.executor.limits.hops_per_token = 4;
      options.watch_policy = [&](StepPolicy& policy) {
        return std::make_unique<StageWatch>(policy, reads, seen, moved);
      };
      VirtualWorld world(options);
      for (int64_t id = 1; id <= 6; ++id) {
        world.arrive(id * 1ms, id, make_request(prompt_of(6), 12, static_cast<uint64_t>(id)));
      }
      world.run_until_idle();
      expect_drained(world);
    }
    for (int32_t stage = 0; stage < 4; ++stage) {
      EXPECT_EQ(seen[stage] > 0, reads) << stage;
    }
    EXPECT_EQ(moved > 0, reads);
  }
}

// The one property that matters, over random schedules, delays, pools, cancels, stops, choices,
// shared prefixes and failures: every request ends once, with the text that it would have had alone
// on one tier; nothing stays behind.
enum class Driver : uint8_t { kChance, kAnything, kStraight, kPiggyback };

struct Seen {
  int64_t straight = 0;
  int64_t transfers = 0;
  int64_t tokens = 0;
  int64_t failures = 0;
  int64_t preemptions = 0;
};

Dice draw_dice(std::mt19937_64& random, uint64_t seed, Driver driver) {
  Dice dice;
  dice.seed = seed;
  dice.offload = static_cast<int>(random() % 101);
  dice.onload = static_cast<int>(random() % 60);
  dice.drop = static_cast<int>(random() % 5);
  dice.preempt = static_cast<int>(random() % 5);
  dice.only_decodes = random() % 2 == 0;
  dice.anything = driver == Driver::kAnything || (driver == Driver::kStraight && seed % 2 == 0);
  dice.straight = driver == Driver::kStraight ? static_cast<int>(seed * 37 % 101) : 0;
  return dice;
}

Seen run_random_traffic(uint64_t seed, Driver driver) {
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const Dice dice = draw_dice(random, seed, driver);
  const auto blocks =
      static_cast<int64_t>(random() % 4 == 0 ? 2 + random() % 3 : 12 + random() % 20);
  const auto host_blocks = static_cast<int64_t>(1 + random() % (random() % 2 == 0 ? 4 : 60));
  WorldOptions options =
      two_tiers(dice, blocks, host_blocks, 1 + static_cast<int32_t>(random() % 12));
  if (driver == Driver::kStraight) {
    options.executor.limits.staging_blocks = static_cast<int32_t>(1 + seed % 12);
  }
  if (driver == Driver::kPiggyback) {
    options.make_policy = {};
    options.policy = "piggyback";
    PolicyOptions& policy = options.policy_options;
    policy[kPiggybackTokenBudget] = 1 + static_cast<int32_t>(random() % 40);
    const auto below = static_cast<int32_t>(random() % 101);
    policy[kOffloadBelow] = below;
    policy[kOnloadAbove] =
        below + static_cast<int32_t>(random() % static_cast<uint64_t>(101 - below));
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
      // Chance may move the only sequence to and fro until the engine gives it up.
      const bool given_up =
          driver != Driver::kPiggyback && outcome.error.find("found no place") != std::string::npos;
      if (cut[id] || given_up) {
        EXPECT_LE(outcome.tokens.size(), expected.size());
        expected.resize(std::min(outcome.tokens.size(), expected.size()));
      }
      EXPECT_EQ(outcome.tokens, expected)
          << "request " << id << " choice " << choice << ' ' << outcome.error;
    }
  }
  EXPECT_EQ(world.put_off(), 0);
  expect_drained(world);
  const testing::EchoHost& host = world.executor().host();
  return {world.straight(), host.transfers(), host.entered(), host.failures(), world.preemptions()};
}

class RandomTraffic : public ::testing::TestWithParam<Driver> {};
std::string driver_name(const ::testing::TestParamInfo<Driver>& test) {
  switch (test.param) {
    case Driver::kChance:
      return "chance";
    case Driver::kAnything:
      return "anything";
    case Driver::kStraight:
      return "straight";
    case Driver::kPiggyback:
      return "piggyback";
  }
  return "";
}
INSTANTIATE_TEST_SUITE_P(Drivers, RandomTraffic,
                         ::testing::Values(Driver::kChance, Driver::kAnything, Driver::kStraight,
                                           Driver::kPiggyback),
                         driver_name);

TEST_P(RandomTraffic, OverTwoTiersIsAnsweredAsIfEachRequestWereAlone) {
  Seen all;
  const uint64_t seeds = GetParam() == Driver::kAnything ? 400 : 150;
  for (uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    const Seen seen = run_random_traffic(seed, GetParam());
    all.straight += seen.straight;
    all.transfers += seen.transfers;
    all.tokens += seen.tokens;
    all.failures += seen.failures;
    all.preemptions += seen.preemptions;
  }
  EXPECT_EQ(all.straight > 300, GetParam() == Driver::kStraight);
  EXPECT_GT(all.transfers, 1000);
  EXPECT_GT(all.tokens, 2000);
  EXPECT_GT(all.failures, 10);
  EXPECT_GT(all.preemptions, 100);
}

}  // namespace
}  // namespace tandem
