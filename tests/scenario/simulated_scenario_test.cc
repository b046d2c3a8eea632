// Runs every text file of tests/scenario/cases with every policy on the simulated machine: the
// executor that serves, hops by layer, binders and lanes (support/simulated_world.h).
#include <gtest/gtest.h>

#include "story.h"
#include "support/simulated_world.h"

namespace tandem {
namespace {

using testing::Scenario;
using testing::SimulatedWorld;

class SimulatedScenarioTest
    : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(SimulatedScenarioTest, Holds) {
  const auto& [name, policy] = GetParam();
  Scenario scenario = testing::read_case(name);
  if (scenario.world.executor.host.failures_per_thousand > 0) {
    GTEST_SKIP() << "no host of the simulated machine fails";
  }
  scenario.world.policy = policy;
  SimulatedWorld world(scenario.world);
  testing::run(scenario, world);
  testing::check_answers(scenario, world, [](const auto& expected, const auto& tokens) {
    return expected.size() == tokens.size();
  });
  testing::check_expectations(scenario, testing::Machine::kSimulated, world);
}

INSTANTIATE_TEST_SUITE_P(Cases, SimulatedScenarioTest,
                         ::testing::Combine(::testing::ValuesIn(testing::case_names()),
                                            ::testing::ValuesIn(testing::policies())),
                         testing::CaseName());

}  // namespace
}  // namespace tandem
