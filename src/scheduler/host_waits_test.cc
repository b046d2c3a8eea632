#include "scheduler/host_waits.h"

#include <gtest/gtest.h>

#include "latency/modular_model.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;

constexpr int32_t kWaitLayers = 16;

// Plans steps that take a millisecond a row.
class WaitingSteps {
 public:
  void plan(int32_t count, milliseconds time) {
    for (int32_t i = 0; i < count; ++i) {
      latency::StepShape shape;
      shape.prefill_rows = static_cast<int32_t>(time.count());
      static_cast<void>(waits().finish({}, shape, 0));
      ++view_.step;
    }
  }
  // What must_wait() compares the target with, in whole milliseconds.
  [[nodiscard]] milliseconds longest_step() {
    SequenceView sequence;
    milliseconds time{0};
    do {
      time += milliseconds(1);
      sequence.tpot = time * (kWaitLayers + 1);
    } while (waits().must_wait(sequence));
    return time;
  }

 private:
  HostWaits waits() {
    view_.budget.host_total_blocks = 1;
    return {view_, model_, memory_};
  }

  const latency::ModularModel model_ =
      latency::simple_model({.layers = kWaitLayers, .per_row = milliseconds(1)});
  SystemView view_;
  HostWaits::Memory memory_;
};

TEST(HostWaits, NoStepOfTheLastOnesWasLonger) {
  WaitingSteps steps;
  steps.plan(1, milliseconds(100));
  EXPECT_EQ(steps.longest_step(), milliseconds(100));
  steps.plan(kWaitLayers, milliseconds(50));
  EXPECT_EQ(steps.longest_step(), milliseconds(100));
  steps.plan(1, milliseconds(5));
  EXPECT_GE(steps.longest_step(), milliseconds(50)) << "the step before it";
  steps.plan(kWaitLayers, milliseconds(5));
  EXPECT_GE(steps.longest_step(), milliseconds(5));
}

TEST(HostWaits, LongStepsAreForgotten) {
  WaitingSteps steps;
  steps.plan(kWaitLayers / 2, milliseconds(1));
  steps.plan(1, milliseconds(100));
  steps.plan(2 * (kWaitLayers + 1), milliseconds(5));
  EXPECT_EQ(steps.longest_step(), milliseconds(5));
}

}  // namespace
}  // namespace tandem
