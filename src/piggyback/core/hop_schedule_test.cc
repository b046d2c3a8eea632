// Properties of HopCore over random schedules.
#include <gtest/gtest.h>

#include "piggyback/core/hop_world.h"

namespace tandem::piggyback {
namespace {

struct Case {
  const char* name;
  WorldOptions options;
};

class HopSchedule : public testing::TestWithParam<Case> {};

TEST_P(HopSchedule, ConsumesEveryResultOnceAtItsStageAndReturnsAllCredits) {
  WorldCounts all;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    WorldOptions options = GetParam().options;
    options.seed = seed;
    HopWorld world(options);
    ASSERT_EQ(world.run(), "");
    all.tokens += world.counts().tokens;
    all.failed += world.counts().failed;
    all.left += world.counts().left;
    all.refused += world.counts().refused;
  }
  EXPECT_GT(all.tokens, 50);
  EXPECT_EQ(all.left > 0, GetParam().options.leave > 0 || all.failed > 0);
  EXPECT_EQ(all.refused > 0, GetParam().options.twice > 0 || GetParam().options.retry > 0 ||
                                 GetParam().options.leave > 0);
}

constexpr HopLimits kUsual{.slots = 8, .ring_rows = 6, .hop_rows = 16, .last_stage = 4};

INSTANTIATE_TEST_SUITE_P(
    Cases, HopSchedule,
    testing::Values(Case{"Calm", {.limits = kUsual}},
                    Case{"OneRowOfEach",
                         {.limits = {.slots = 8, .ring_rows = 1, .hop_rows = 1, .last_stage = 2},
                          .actions = 12000}},
                    Case{"RingOfOne",
                         {.limits = {.slots = 8, .ring_rows = 1, .hop_rows = 16, .last_stage = 3},
                          .actions = 6000}},
                    Case{"FewHopRows",
                         {.limits = {.slots = 8, .ring_rows = 8, .hop_rows = 3, .last_stage = 3},
                          .actions = 6000}},
                    Case{"FewSlots",
                         {.limits = {.slots = 2, .ring_rows = 4, .hop_rows = 4, .last_stage = 3},
                          .actions = 6000,
                          .leave = 40}},
                    Case{"OneLayer",
                         {.limits = {.slots = 4, .ring_rows = 4, .hop_rows = 8, .last_stage = 1}}},
                    Case{"Leaving", {.limits = kUsual, .leave = 60}},
                    Case{"Failing", {.limits = kUsual, .fail = 15}},
                    Case{"Twice", {.limits = kUsual, .twice = 40}},
                    Case{"Hanging", {.limits = kUsual, .actions = 6000, .hang = 10, .retry = 40}},
                    Case{"HangingWithFewRows",
                         {.limits = {.slots = 8, .ring_rows = 2, .hop_rows = 4, .last_stage = 3},
                          .actions = 9000,
                          .hang = 10,
                          .retry = 40}},
                    Case{"Everything",
                         {.limits = kUsual,
                          .group_stages = 5,
                          .actions = 9000,
                          .leave = 25,
                          .fail = 5,
                          .hang = 8,
                          .twice = 20,
                          .retry = 30}}),
    [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace tandem::piggyback
