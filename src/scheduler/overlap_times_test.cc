#include "scheduler/overlap_times.h"

#include <gtest/gtest.h>

#include "latency/modular_model.h"

namespace tandem {
namespace {

using std::chrono::microseconds;

// A step takes 1 ms, 40 us for each row that passes all four layers, and 400 ns for each token that
// a decode attends to.
const latency::ModularModel& overlap_model() {
  static const latency::ModularModel made = latency::simple_model({.layers = 4,
                                                                   .fixed = microseconds(1000),
                                                                   .per_row = microseconds(40),
                                                                   .per_context_nanos = 400});
  return made;
}

latency::StepShape residents() {
  latency::StepShape shape;
  shape.add_decode(100);
  return shape;
}

TEST(OverlapTimes, EachTokenGetsOneHopOfAStep) {
  const OverlapStep alone = overlap_step(overlap_model(), nullptr, residents(), {});
  EXPECT_EQ(alone.time, microseconds(1080));
  EXPECT_EQ(alone.tokens, 0);
  const OverlapStep ten =
      overlap_step(overlap_model(), nullptr, residents(), {.rows = 10, .context = 800});
  EXPECT_DOUBLE_EQ(ten.tokens, 2) << "ten hops, of five a token";
  EXPECT_EQ(ten.time, microseconds(1080 + 80)) << "as many rows as two tokens have";
}

TEST(OverlapTimes, AHostThatTakesLongerThanTheStepGivesLess) {
  latency::HostTimes host;
  host.attention.per_context_nanos = 1450;  // 1,160 us for all ten: as long as the step
  const HostRows ten{.rows = 10, .context = 800};
  EXPECT_NEAR(overlap_step(overlap_model(), &host, residents(), ten).tokens, 2, 1e-9);
  host.attention.per_context_nanos *= 4;
  EXPECT_NEAR(overlap_step(overlap_model(), &host, residents(), ten).tokens, 0.5, 1e-9);
  // A cohort misses the whole step that the host needs a little of.
  host.attention.per_context_nanos = 1450 * 1.5;
  EXPECT_NEAR(overlap_step(overlap_model(), &host, residents(), ten).tokens, 2 / 1.5, 1e-9);
  EXPECT_NEAR(overlap_step(overlap_model(), &host, residents(), ten, OverlapJoin::kCohort).tokens,
              1, 1e-9);
}

}  // namespace
}  // namespace tandem
