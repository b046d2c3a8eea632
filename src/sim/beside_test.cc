// Simulations on several threads of one process: a program of its own, so that ThreadSanitizer runs
// it and not all of the simulator's tests.
#include <gtest/gtest.h>

#include <future>

#include "sim/test_support.h"

namespace tandem::sim {
namespace {

// Also beside another simulation in the same process, as `tandem tune` runs them.
TEST(Simulate, RepeatsBitForBit) {
  const loadgen::Load load = fixed_load(60, 4, 700, 60);
  std::future<Simulated> beside =
      std::async(std::launch::async, [&load] { return must_run(an_a100(), load); });
  const Simulated one = must_run(an_a100(), load);
  const Simulated two = beside.get();
  ASSERT_EQ(one.run.records.size(), two.run.records.size());
  for (size_t i = 0; i < one.run.records.size(); ++i) {
    EXPECT_EQ(one.run.records[i].chunk_times, two.run.records[i].chunk_times) << i;
  }
  EXPECT_EQ(one.happenings, two.happenings);
}

}  // namespace
}  // namespace tandem::sim
