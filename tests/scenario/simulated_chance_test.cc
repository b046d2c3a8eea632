// Plans drawn by chance on the simulated machine: offloads, returns, drops, holds, both modes of
// steps, and tokens under way that change lanes in the middle of their hops. Each request gets all
// of its tokens, whatever the plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "support/simulated_world.h"
#include "support/two_tier_world.h"

namespace tandem {
namespace {

using testing::Dice;
using testing::make_request;
using testing::Outcome;
using testing::prompt_of;
using testing::SimulatedWorld;
using testing::two_tiers;
using testing::WorldOptions;

struct Seen {
  int64_t entered = 0;
  int64_t lane_moves = 0;
  int64_t mode_changes = 0;
  int64_t preemptions = 0;
};

WorldOptions drawn_world(std::mt19937_64& random, uint64_t seed) {
  Dice dice;
  dice.seed = seed;
  dice.offload = static_cast<int>(random() % 95);  // with 100 % no prompt would be computed
  dice.onload = static_cast<int>(random() % 60);
  dice.drop = static_cast<int>(random() % 5);
  dice.preempt = static_cast<int>(random() % 5);
  dice.only_decodes = random() % 2 == 0;
  dice.anything = true;
  const auto blocks = static_cast<int64_t>(12 + random() % 20);
  const auto host_blocks = static_cast<int64_t>(1 + random() % 60);
  WorldOptions options =
      two_tiers(dice, blocks, host_blocks, 1 + static_cast<int32_t>(random() % 12));
  options.executor.limits.hops_per_token = 1 + static_cast<int32_t>(random() % 6);
  options.executor.host.max_hops = std::chrono::microseconds(random() % 30000);
  options.engine.prefix_caching = random() % 5 == 0 ? PrefixCaching::kOff : PrefixCaching::kOn;
  return options;
}

Seen run_traffic(uint64_t seed) {
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  SimulatedWorld world(drawn_world(random, seed));
  std::map<int64_t, std::pair<int32_t, bool>> wanted;  // tokens, and whether a client ends it
  for (int64_t id = 1; id <= 16; ++id) {
    const auto tokens = static_cast<int32_t>(1 + random() % 20);
    Request request = make_request(
        prompt_of(1 + static_cast<int>(random() % 20), static_cast<TokenId>(random() % 3)), tokens,
        random() % 5);
    request.service_class =
        random() % 2 == 0 ? ServiceClass::kBestEffort : ServiceClass::kLatencySensitive;
    const Nanos at = std::chrono::microseconds(random() % 60000);
    world.arrive(at, id, std::move(request));
    const bool ends = random() % 4 == 0;
    if (ends) {
      const Nanos end = at + std::chrono::microseconds(random() % 60000);
      random() % 2 == 0 ? world.cancel(end, id) : world.stop(end, id, 0);
    }
    wanted[id] = {tokens, ends};
  }
  world.run_until_idle();
  for (const auto& [id, request] : wanted) {
    const Outcome& outcome = world.outcome(id);
    EXPECT_EQ(outcome.finishes, 1) << "request " << id;
    EXPECT_LE(outcome.tokens.size(), static_cast<size_t>(request.first));
    // Chance may move the only sequence to and fro until the engine gives it up.
    if (!request.second && outcome.error.find("found no place") == std::string::npos) {
      EXPECT_EQ(outcome.tokens.size(), static_cast<size_t>(request.first))
          << "request " << id << ' ' << outcome.error;
    }
  }
  const KvManager& kv = world.engine().kv();
  EXPECT_EQ(kv.free_blocks(), kv.total_blocks());
  EXPECT_EQ(kv.free_blocks(Tier::kHost), kv.total_blocks(Tier::kHost));
  EXPECT_TRUE(world.drained());
  return {world.offloaded(), world.lane_moves(), world.mode_changes(), world.preemptions()};
}

TEST(SimulatedChance, EachRequestGetsAllOfItsTokensWhateverThePlans) {
  Seen all;
  for (uint64_t seed = 1; seed <= 200 && !::testing::Test::HasFailure(); ++seed) {
    const Seen seen = run_traffic(seed);
    all.entered += seen.entered;
    all.lane_moves += seen.lane_moves;
    all.mode_changes += seen.mode_changes;
    all.preemptions += seen.preemptions;
  }
  EXPECT_GT(all.entered, 2000);
  EXPECT_GT(all.lane_moves, 500);
  EXPECT_GT(all.mode_changes, 500);
  EXPECT_GT(all.preemptions, 100);
}

}  // namespace
}  // namespace tandem
