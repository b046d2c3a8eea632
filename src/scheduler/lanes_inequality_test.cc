#include "scheduler/lanes_inequality.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "latency/modular_model.h"

namespace tandem {
namespace {

using std::chrono::microseconds;

// Of a layer: 10 us for each row, 100 ns for each token that a decode attends to, 1 ns for each
// pair of a prompt.
const latency::ModularModel& inequality_model() {
  static const latency::ModularModel made = latency::simple_model({.layers = 4,
                                                                   .fixed = microseconds(1000),
                                                                   .per_row = microseconds(40),
                                                                   .per_context_nanos = 400,
                                                                   .per_pair_nanos = 4});
  return made;
}

latency::HostTimes inequality_host(double per_context_nanos) {
  latency::HostTimes host;
  host.attention.per_context_nanos = per_context_nanos;
  return host;
}

latency::StepShape decodes(int32_t rows, int64_t context) {
  latency::StepShape shape;
  for (int32_t i = 0; i < rows; ++i) {
    shape.add_decode(context);
  }
  return shape;
}

LanesInequality sides(const latency::StepShape& residents, double host_per_context,
                      MixedWindow window = MixedWindow::kPrinted) {
  const latency::HostTimes host = inequality_host(host_per_context);
  const LaneModel lanes(inequality_model(), &host, LaneWindows::kPaper);
  return lanes_inequality(lanes, &host, residents, {.rows = 3, .context = 900}, window);
}

// Four decodes of 500 tokens: T_l = 40 us, T_g = 200 us.
TEST(LanesInequality, OfDecodesAloneIsInequalitySix) {
  const LanesInequality slow = sides(decodes(4, 500), 1000);
  EXPECT_NEAR(slow.rate_ratio, 10, 1e-9) << "100 ns a token against 1,000";
  EXPECT_NEAR(slow.bound, 2 * 40.0 / 200 + 3 + 200.0 / 40, 1e-9);
  EXPECT_FALSE(slow.holds());
  EXPECT_TRUE(sides(decodes(4, 500), 800).holds());
  EXPECT_EQ(sides(decodes(4, 500), 800, MixedWindow::kReal).bound, slow.bound);
}

// Forty rows of 300 tokens take the host longer than the window of 280 us, so its fixed time is
// spread over the seven rows that fit.
TEST(LanesInequality, TheHostsRateIsThatOfTheRowsThatFitItsWindow) {
  latency::HostTimes host = inequality_host(100);
  host.attention.fixed_nanos = 60'000;
  const LaneModel lanes(inequality_model(), &host, LaneWindows::kPaper);
  const auto ratio = [&](int64_t rows) {
    return lanes_inequality(lanes, &host, decodes(4, 500), {.rows = rows, .context = rows * 300},
                            MixedWindow::kPrinted)
        .rate_ratio;
  };
  EXPECT_NEAR(ratio(3), (1 / 100.0) / (900 / 150'000.0), 1e-9);
  EXPECT_NEAR(ratio(7), (1 / 100.0) / (2100 / 270'000.0), 1e-9) << "of 280 us";
  EXPECT_EQ(ratio(40), ratio(7));
  host.attention.fixed_nanos = 400'000;
  EXPECT_NEAR(ratio(40), (1 / 100.0) / (300 / 430'000.0), 1e-9) << "one at least";
}

// The same beside a prompt of 60: T_l' = 640 us, T_g' = 200 us and 1,830 pairs.
TEST(LanesInequality, OfMixedStepsHasTheLongerWindow) {
  latency::StepShape mixed = decodes(4, 500);
  mixed.add_prefill(0, 60, 1);
  const double window = 640 + 40 + 201.83;
  EXPECT_NEAR(sides(mixed, 1000).bound, window / (200 * (280.0 / 240 - 1)), 1e-6);
  EXPECT_NEAR(sides(mixed, 1000, MixedWindow::kReal).bound, window / (200 * (window / 841.83 - 1)),
              1e-6);
  EXPECT_NEAR(sides(mixed, 1000).rate_ratio, 10, 1e-9) << "the rates are those of decodes";
}

TEST(LanesInequality, WithoutResidentDecodesOrAKnownHostLanesPay) {
  latency::StepShape prompts;
  prompts.add_prefill(0, 60, 1);
  EXPECT_TRUE(std::isinf(sides(prompts, 1000).bound));
  EXPECT_TRUE(sides(prompts, 1000).holds());
  const LaneModel lanes(inequality_model(), nullptr, LaneWindows::kPaper);
  EXPECT_EQ(lanes_inequality(lanes, nullptr, decodes(4, 500), {.rows = 3, .context = 900},
                             MixedWindow::kPrinted)
                .rate_ratio,
            0);
}

// The ratio's form says what Algorithm 1 says: (N_G T_g + N_C W) / D > N_G T_g / G.
TEST(LanesInequality, AgreesWithTheFormOfAlgorithmOneInRandomSteps) {
  std::mt19937 random(3);
  const auto number = [&](int32_t max) {
    return 1 + static_cast<int32_t>(random() % static_cast<uint32_t>(max));
  };
  int held = 0;
  for (int i = 0; i < 500; ++i) {
    latency::StepShape residents = decodes(number(20), number(2000));
    const LaneModel lanes(inequality_model(), nullptr, LaneWindows::kPaper);
    const LaneTimes alone = lanes.times(Lane{.residents = residents});
    const bool mixed = number(2) == 1;
    if (mixed) {
      residents.add_prefill(0, number(200), 1);
    }
    const LaneTimes whole = lanes.times(Lane{.residents = residents});
    const double dense = double(alone.dense.count());
    const double attention = double(alone.attention.count());
    const double window =
        mixed ? double((whole.dense + whole.attention).count()) + dense : 2 * dense + attention;
    const double host_per_context = number(5000);
    const double attended = double(residents.decode_context);
    const double left = (attended + window / host_per_context) / (2 * dense + attention);
    const double right = attended / (dense + attention);
    const LanesInequality said = sides(residents, host_per_context);
    if (std::abs(left / right - 1) > 1e-6) {
      EXPECT_EQ(said.holds(), left > right);
    }
    held += said.holds() ? 1 : 0;
  }
  EXPECT_GT(held, 50);
  EXPECT_LT(held, 450);
}

}  // namespace
}  // namespace tandem
