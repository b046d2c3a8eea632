#include "sim/engine_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::sim {
namespace {

using std::chrono::microseconds;
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

constexpr RequestSize kPrompt{.prompt_tokens = 100, .output_tokens = 10};

TEST(EngineChoice, OfEqualEnginesTheEngineWithTheLeastWorkWinsThenTheName) {
  EngineChoice choice(kEngines, {group_of("priority")});
  EXPECT_THAT(choice.order(0, kPrompt), ElementsAre(2, 0));  // "a"
  choice.accepted(2, kPrompt);
  EXPECT_THAT(choice.order(0, kPrompt), ElementsAre(0, 2));
  choice.accepted(0, {.prompt_tokens = 300, .output_tokens = 10});
  EXPECT_THAT(choice.order(0, kPrompt), ElementsAre(2, 0));
  choice.began(0, {.prompt_tokens = 300, .output_tokens = 10});
  EXPECT_THAT(choice.order(0, kPrompt), ElementsAre(0, 2));
  choice.began(2, kPrompt);  // no prompt waits, and each has a request
  EXPECT_THAT(choice.order(0, kPrompt), ElementsAre(2, 0));
  choice.ended(0, {.prompt_tokens = 300, .output_tokens = 10});
  EXPECT_THAT(choice.order(0, kPrompt), ElementsAre(0, 2));
}

// 100 x 1 us + 10 x 10 us are 0.2 ms on the fast engine, and 100 x 20 us + 10 x 100 us are 3 ms on
// the slow one. Each request that the fast engine has adds 0.1 ms + 10 x 2 us.
TEST(EngineChoice, ASlowEngineGetsARequestOnlyIfItWouldEndThereFirst) {
  const std::vector<EngineTarget> engines = {{.name = "slow",
                                              .serves = std::nullopt,
                                              .speed = {.prompt_token = microseconds(20),
                                                        .full_decode = microseconds(50),
                                                        .sole_decode = microseconds(100)}},
                                             {.name = "zfast",
                                              .serves = std::nullopt,
                                              .speed = {.prompt_token = microseconds(1),
                                                        .full_decode = microseconds(2),
                                                        .sole_decode = microseconds(10)}}};
  EngineChoice choice(engines, {group_of("")});
  int requests = 0;
  for (; choice.order(0, kPrompt).front() == 1; ++requests) {
    choice.accepted(1, kPrompt);
  }
  EXPECT_EQ(requests, 24);
  choice.began(1, kPrompt);
  EXPECT_THAT(choice.order(0, kPrompt), ElementsAre(1, 0));
}

TEST(EngineChoice, AGroupStaysWithTheEngineThatItNames) {
  EngineChoice choice(kEngines, {group_of("flex", "c")});
  choice.accepted(0, {.prompt_tokens = 100'000, .output_tokens = 1});
  EXPECT_THAT(choice.order(0, kPrompt), ElementsAre(0));
}

}  // namespace
}  // namespace tandem::sim
