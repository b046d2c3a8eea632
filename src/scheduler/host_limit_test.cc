#include "scheduler/host_limit.h"

#include <gtest/gtest.h>

#include <vector>

#include "latency/modular_model.h"

namespace tandem {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

SequenceView on_the_host(int64_t id, SequenceState state, int32_t known_tokens) {
  return {.id = SequenceId{id},
          .state = state,
          .service_class = ServiceClass::kBestEffort,
          .known_tokens = known_tokens,
          .computed_tokens = known_tokens - 1,
          .tier = Tier::kHost};
}

const latency::HostTimes& host_times() {
  static const latency::HostTimes times{
      .attention = {.per_context_nanos = 1000, .per_row_nanos = 10'000, .fixed_nanos = 100'000},
      .to_host = {},
      .from_host = {},
      .launch = {}};
  return times;
}

TEST(HostLimit, OneHopOfEachSequenceThatDecodesThereCounts) {
  std::vector<SequenceView> offloaded = {
      on_the_host(1, SequenceState::kParkedInFlight, 200),
      on_the_host(2, SequenceState::kParkedWaiting, 300),
      on_the_host(3, SequenceState::kOnloading, 400),   // leaves the host
      on_the_host(4, SequenceState::kOffloading, 500),  // is not there yet
  };
  offloaded[3].tier = Tier::kAccelerator;
  const latency::ModularModel model =
      latency::simple_model({.layers = 4, .fixed = milliseconds(2), .per_row = microseconds(100)});
  latency::StepShape residents;
  residents.add_decode(50);
  SystemView view;
  view.offloaded = offloaded;
  const HopsOfAStep hops = hops_of_a_step(view, host_times(), model, residents);
  EXPECT_EQ(hops.host, microseconds(100 + 2 * 10 + 500));
  EXPECT_GT(hops.step, model.step_time(residents)) << "two visitors join it";
  EXPECT_LT(hops.step, model.step_time(residents) + microseconds(200));
}

TEST(HostLimit, AnEmptyHostTakesNoTime) {
  const latency::ModularModel model = latency::simple_model({.layers = 4});
  const HopsOfAStep hops = hops_of_a_step({}, host_times(), model, {});
  EXPECT_EQ(hops.host, Nanos{0});
}

// Steps of 10 ms.
class Steps {
 public:
  explicit Steps(int32_t steps) : limit_(steps) {}
  // For how many of `count` steps in a row, in each of which the host takes so long, it limits.
  int32_t limited(int32_t count, milliseconds host) {
    int32_t limited = 0;
    for (int32_t i = 0; i < count; ++i) {
      limited += limit_.limits({.host = host, .step = milliseconds(10)}, step_++) ? 1 : 0;
    }
    return limited;
  }

 private:
  HostLimit limit_;
  int64_t step_ = 100;
};

TEST(HostLimit, BeginsAndEndsAfterStepsInARow) {
  Steps steps(8);
  EXPECT_EQ(steps.limited(8, milliseconds(11)), 0);
  EXPECT_EQ(steps.limited(1, milliseconds(10)), 0) << "as long as the step: it keeps up";
  EXPECT_EQ(steps.limited(20, milliseconds(11)), 20 - 8) << "counted anew";
  EXPECT_EQ(steps.limited(100, milliseconds(9)), 100) << "it hardly keeps up";
  EXPECT_EQ(steps.limited(8, milliseconds(8)), 8);
  EXPECT_EQ(steps.limited(1, milliseconds(9)), 1);
  EXPECT_EQ(steps.limited(20, milliseconds(8)), 8);
  EXPECT_EQ(steps.limited(8, milliseconds(11)), 0) << "counted anew";
}

TEST(HostLimit, EndsAtOnceWhenNoSequenceDecodesOnTheHost) {
  Steps steps(8);
  EXPECT_EQ(steps.limited(20, milliseconds(11)), 12);
  EXPECT_EQ(steps.limited(1, milliseconds(0)), 0);
}

TEST(HostLimit, OfNoStepsNeverBegins) {
  Steps steps(0);
  EXPECT_EQ(steps.limited(1000, milliseconds(1000)), 0);
}

}  // namespace
}  // namespace tandem
