// Runs every text file of tests/scenario/cases with every policy, over the echo executor. The
// format is described in README.md beside it.
#include <gtest/gtest.h>

#include "story.h"

namespace tandem {
namespace {

using testing::Scenario;
using testing::VirtualWorld;

class ScenarioTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(ScenarioTest, Holds) {
  const auto& [name, policy] = GetParam();
  Scenario scenario = testing::read_case(name);
  scenario.world.policy = policy;
  VirtualWorld world(scenario.world);
  testing::run(scenario, world);
  testing::check_answers(scenario, world, std::equal_to<>());
  testing::check_expectations(scenario, testing::Machine::kEcho, world);
}

INSTANTIATE_TEST_SUITE_P(Cases, ScenarioTest,
                         ::testing::Combine(::testing::ValuesIn(testing::case_names()),
                                            ::testing::ValuesIn(testing::policies())),
                         testing::CaseName());

}  // namespace
}  // namespace tandem
