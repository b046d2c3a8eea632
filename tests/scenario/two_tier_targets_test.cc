// What docs/design/two-tiers.md says of TPOT targets beside offloaded sequences, in virtual time,
// with steps that run stage by stage.
#include <gtest/gtest.h>

#include "support/staged_world.h"

namespace tandem {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::StagedStep;
using testing::StagedWorld;
using testing::StagedWorldOptions;

StagedWorldOptions options_of(int64_t blocks) {
  StagedWorldOptions options;
  options.executor.limits = {.max_batched_tokens = 1024,
                             .max_logit_rows = 288,
                             .total_blocks = blocks,
                             .block_tokens = 16,
                             .host_blocks = 5000,
                             .offloaded_sequences = 256,
                             .hops_per_token = 16};
  options.executor.costs = {.layers = 16,
                            .fixed = milliseconds(1),
                            .per_row = microseconds(80),
                            .per_logit = microseconds(5)};
  options.engine.max_running = 256;
  return options;
}

// Steps are planned to 24/25 of this target.
constexpr Nanos kTpot = milliseconds(20);
constexpr Nanos kLimit = kTpot - kTpot / 25;

// Best-effort prompts fill the steps of a few latency-sensitive decodes, and all best-effort
// decodes are on a host so fast that results wait at every stage.
using Launched = testing::StagedOptions::Launched;
Nanos longest_step_beside_visitors(int32_t belief_percent, int32_t group_stages,
                                   Launched launched = Launched::kShown) {
  StagedWorldOptions options = options_of(4000);
  options.belief_percent = belief_percent;
  options.executor.group_stages = group_stages;
  options.executor.launched = launched;
  options.executor.costs.layers = 8;
  options.executor.host_period = milliseconds(47);
  options.policy.offload_below = 100;
  options.policy.onload_above = 100;
  StagedWorld world(options);
  for (int i = 0; i < 4; ++i) {
    world.arrive(milliseconds(i), 32, 120, kLs, kTpot);
  }
  for (int i = 0; i < 200; ++i) {
    world.arrive(milliseconds(5), 100 + i % 60, 150, kBe);
  }
  world.run_until(milliseconds(2500));
  Nanos longest{0};
  int64_t visits = 0;
  for (const StagedStep& step : world.executor().steps()) {
    // The targets limit steps as long as the four decode.
    if (step.shape.decode_rows >= 4 && step.shape.prefill_rows > 0) {
      longest = std::max(longest, step.took);
      visits += step.visits;
    }
  }
  EXPECT_GT(visits, 1000);
  return longest;
}

TEST(TwoTierTargets, NoStepOverrunsItsLimitByMoreThanTheModelsError) {
  for (const int32_t group_stages : {1, 4, 8}) {
    EXPECT_LE(longest_step_beside_visitors(100, group_stages), kLimit + microseconds(1))
        << group_stages;
    EXPECT_LE(longest_step_beside_visitors(90, group_stages), kLimit * 100 / 90 + microseconds(1))
        << group_stages;
  }
}

// The world is hard enough: what is launched and not counted makes steps too long.
TEST(TwoTierTargets, StepsOverrunIfTheBinderDoesNotSeeWhatIsLaunched) {
  EXPECT_GT(longest_step_beside_visitors(100, 4, Launched::kHidden), kLimit + microseconds(100));
}

// Four latency-sensitive answers outgrow the accelerator's blocks.
struct LastResort {
  int64_t offloads = 0;
  int64_t computed_on_host = 0;
  Nanos longest_gap{0};
  Nanos end{0};
};

LastResort outgrow_the_accelerator(std::optional<Nanos> tpot, int32_t best_effort) {
  StagedWorld world(options_of(40));
  std::vector<int64_t> ids;
  for (int i = 0; i < 4; ++i) {
    ids.push_back(world.arrive(milliseconds(i), 60, 140, kLs, tpot));
  }
  for (int i = 0; i < best_effort; ++i) {
    world.arrive(milliseconds(100), 100, 20, kBe);
  }
  world.run_until_idle();
  LastResort found{.offloads = world.executor().offloads(),
                   .computed_on_host = world.executor().entered()};
  for (const int64_t id : ids) {
    EXPECT_EQ(world.times(id).size(), 140U);
    found.longest_gap = std::max(found.longest_gap, world.longest_gap(id));
    found.end = std::max(found.end, world.times(id).back());
  }
  return found;
}

// A step takes 1.3 ms, a token needs 17 of them on the host.
TEST(TwoTierTargets, ALatencySensitiveSequenceDecodesOnTheHostIfItsTargetAllowsIt) {
  for (const std::optional<Nanos> tpot : {std::optional<Nanos>(milliseconds(60)), {}}) {
    const LastResort found = outgrow_the_accelerator(tpot, 0);
    EXPECT_GT(found.offloads, 0);
    EXPECT_GT(found.computed_on_host, 0);
  }
}

TEST(TwoTierTargets, ALatencySensitiveSequenceWaitsOnTheHostIfItsTargetDoesNot) {
  for (const Nanos tpot : {milliseconds(4), milliseconds(15)}) {
    const LastResort found = outgrow_the_accelerator(tpot, 0);
    EXPECT_GT(found.offloads, 0);
    EXPECT_EQ(found.computed_on_host, 0);
  }
}

// It comes back before best effort begins.
TEST(TwoTierTargets, ASequenceThatWaitsOnTheHostComesBackFirst) {
  const LastResort alone = outgrow_the_accelerator(milliseconds(15), 0);
  const LastResort beside = outgrow_the_accelerator(milliseconds(15), 30);
  EXPECT_GT(beside.offloads, 0);
  EXPECT_LE(beside.longest_gap, alone.longest_gap + 2 * milliseconds(15));
}

}  // namespace
}  // namespace tandem
