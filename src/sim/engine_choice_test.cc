#include "sim/engine_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<EngineTarget> kEngines = {{.name = "c", .serves = std::nullopt},
                                            {.name = "bulk", .serves = ServiceClass::kBestEffort},
                                            {.name = "a", .serves = std::nullopt}};

loadgen::RequestGroup group_of(const std::string& tier, const std::string& engine = "") {
  return {.name = "group", .service_tier = tier, .engine = engine};
}

TEST(EngineChoice, GroupsGoToTheEngineTheyNameOrToThoseOfTheirClass) {
  EXPECT_THAT(engines_of(group_of("flex"), kEngines), ElementsAre(2, 1, 0));
  EXPECT_THAT(engines_of(group_of("priority"), kEngines), ElementsAre(2, 0));
  EXPECT_THAT(engines_of(group_of(""), kEngines), ElementsAre(2, 0));
  EXPECT_THAT(engines_of(group_of("priority", "bulk"), kEngines), ElementsAre(1));
  EXPECT_THAT(engines_of(group_of("flex", "d"), kEngines), IsEmpty());
}

TEST(EngineChoice, TheFewestQueuedPromptTokensWinThenTheFewestRequestsThenTheName) {
  EngineChoice choice(kEngines, {group_of("priority")});
  EXPECT_EQ(choice.choose(0), 2U);  // "a"
  choice.sent(2, 100);
  EXPECT_EQ(choice.choose(0), 0U);
  choice.sent(0, 300);
  EXPECT_EQ(choice.choose(0), 2U);
  choice.began(0, 300);
  EXPECT_EQ(choice.choose(0), 0U);
  choice.began(2, 100);  // no prompt waits, and each has a request
  EXPECT_EQ(choice.choose(0), 2U);
  choice.ended(0);
  EXPECT_EQ(choice.choose(0), 0U);
}

TEST(EngineChoice, AGroupStaysWithTheEngineThatItNames) {
  EngineChoice choice(kEngines, {group_of("flex", "c")});
  choice.sent(0, 100'000);
  EXPECT_EQ(choice.choose(0), 0U);
}

}  // namespace
}  // namespace tandem::sim
