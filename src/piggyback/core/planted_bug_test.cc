// Linked with a hop core that has a bug planted (CMakeLists.txt): the random schedules must find
// it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "support/hop_world.h"

namespace tandem::piggyback {
namespace {

// Ends the process: 0 when no schedule finds anything; by a failed CHECK or with 1 when one does.
[[noreturn]] void run_all_schedules() {
  for (const WorldCase& one : world_cases()) {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      WorldOptions options = one.options;
      options.seed = seed;
      options.audit = false;  // by what data would show, not by looking inside
      const std::string wrong = HopWorld(options).run();
      if (!wrong.empty()) {
        std::cerr << one.name << ": " << wrong << '\n';
        std::_Exit(1);
      }
    }
  }
  std::_Exit(0);
}

bool found(int status) { return !testing::ExitedWithCode(0)(status); }

TEST(PlantedBug, IsFoundBySchedules) {
  EXPECT_EXIT(run_all_schedules(), found, "") << "the tests do not see this bug";
}

}  // namespace
}  // namespace tandem::piggyback
