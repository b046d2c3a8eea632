// Properties of HopCore over random schedules.
#include <gtest/gtest.h>

#include "support/hop_world.h"

namespace tandem::piggyback {
namespace {

class HopSchedule : public testing::TestWithParam<WorldCase> {};

TEST_P(HopSchedule, ConsumesEveryResultOnceAtItsStageAndReturnsAllCredits) {
  const WorldOptions& given = GetParam().options;
  WorldCounts all;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    WorldOptions options = given;
    options.seed = seed;
    HopWorld world(options);
    ASSERT_EQ(world.run(), "");
    all.tokens += world.counts().tokens;
    all.failed += world.counts().failed;
    all.left += world.counts().left;
    all.moved += world.counts().moved;
    all.refused += world.counts().refused;
  }
  EXPECT_GT(all.tokens, 50);
  EXPECT_EQ(all.left > 0, given.leave > 0);
  EXPECT_EQ(all.moved > 0, given.move > 0);
  EXPECT_EQ(all.refused > 0, given.twice > 0 || given.retry > 0 || given.leave > 0);
}

INSTANTIATE_TEST_SUITE_P(Cases, HopSchedule, testing::ValuesIn(world_cases()),
                         [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace tandem::piggyback
