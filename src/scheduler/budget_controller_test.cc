#include "scheduler/budget_controller.h"

#include <gtest/gtest.h>

#include <random>

namespace tandem {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Nanos kBudget = milliseconds(20);

SequenceView decode(int64_t id, int32_t known,
                    ServiceClass service_class = ServiceClass::kLatencySensitive) {
  return {.id = SequenceId{id},
          .state = SequenceState::kDecoding,
          .service_class = service_class,
          .known_tokens = known,
          .computed_tokens = known - 1};
}

// Sixteen latency-sensitive sequences that decode, beside best effort or without.
class Traffic {
 public:
  explicit Traffic(BudgetController& controller) : controller_(controller) {}

  void run(Nanos length, Nanos step, bool best_effort = true) {
    for (const Nanos until = now_ + length; now_ < until; now_ += step) {
      ++known_;
      std::vector<SequenceView> running;
      for (int64_t id = 1; id <= 16; ++id) {
        running.push_back(decode(id, known_));
      }
      if (best_effort) {
        running.push_back(decode(100, known_, ServiceClass::kBestEffort));
      }
      SystemView view;
      view.now = now_;
      view.running = running;
      controller_.observe(view);
      controller_.planned(milliseconds(2), {});
    }
  }

 private:
  BudgetController& controller_;
  Nanos now_{0};
  int32_t known_ = 100;
};

TEST(TimeHistogram, KnowsTimesToAHundredth) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> millis(3, 1);
  std::vector<Nanos> times;
  TimeHistogram histogram;
  Nanos sum{0};
  for (int i = 0; i < 10'000; ++i) {
    times.emplace_back(static_cast<int64_t>(millis(random) * 1e6));
    histogram.add(times.back());
    sum += times.back();
  }
  std::ranges::sort(times);
  EXPECT_EQ(histogram.mean(), sum / 10'000);
  for (const int percent : {1, 50, 99}) {
    const auto exact = static_cast<double>(times[static_cast<size_t>(percent * 100 - 1)].count());
    const auto found = static_cast<double>(histogram.percentile(percent).count());
    EXPECT_GE(found, exact) << percent;
    EXPECT_LE(found, exact * 1.011) << percent;
  }
}

TEST(TimeHistogram, KeepsWhatIsTooShortOrTooLongForItsBuckets) {
  TimeHistogram histogram;
  histogram.add(Nanos{0});
  EXPECT_LE(histogram.percentile(99), std::chrono::microseconds(2));
  histogram.add(std::chrono::hours(10));
  EXPECT_GE(histogram.percentile(99), std::chrono::minutes(14));
}

TEST(BudgetController, GoesDownByAtMostFivePercentWhereAGoalIsMissed) {
  BudgetController controller(kBudget, {.p99_tbt = milliseconds(20)});
  Traffic traffic(controller);
  traffic.run(seconds(29), milliseconds(40));
  EXPECT_EQ(controller.budget(), kBudget);
  traffic.run(seconds(2), milliseconds(40));
  EXPECT_EQ(controller.budget(), kBudget * 95 / 100);
  traffic.run(seconds(30), milliseconds(40));
  EXPECT_EQ(controller.budget(), kBudget * 95 * 95 / 10'000);
}

TEST(BudgetController, GoesNoFurtherThanTheGoalNeeds) {
  BudgetController controller(kBudget, {.mean_tbt = milliseconds(49)});
  Traffic traffic(controller);
  traffic.run(seconds(31), milliseconds(50));
  EXPECT_EQ(controller.budget(), kBudget * 98 / 100);
}

TEST(BudgetController, GoesUpToHalfAsMuchAgainWhereAllIsKept) {
  BudgetController controller(kBudget, {.p99_tbt = milliseconds(40)});
  Traffic traffic(controller);
  traffic.run(seconds(31), milliseconds(20));
  EXPECT_EQ(controller.budget(), kBudget * 105 / 100);
  traffic.run(seconds(600), milliseconds(20));
  EXPECT_EQ(controller.budget(), kBudget * 3 / 2);
}

TEST(BudgetController, DoesNotGrowWhereNobodyUsesIt) {
  BudgetController controller(kBudget, {.p99_tbt = milliseconds(40)});
  Traffic traffic(controller);
  traffic.run(seconds(100), milliseconds(20), false);
  EXPECT_EQ(controller.budget(), kBudget);
}

TEST(BudgetController, StaysWhereTheGoalIsJustKept) {
  BudgetController controller(kBudget, {.mean_tbt = milliseconds(51)});
  Traffic traffic(controller);
  traffic.run(seconds(200), milliseconds(50));
  EXPECT_EQ(controller.budget(), kBudget);
}

TEST(BudgetController, NeverGoesBelowWhatLatencySensitiveStepsTake) {
  BudgetController controller(milliseconds(3), {.p99_tbt = milliseconds(20)});
  Traffic traffic(controller);
  traffic.run(seconds(1000), milliseconds(40));
  EXPECT_EQ(controller.budget(), milliseconds(2));
}

TEST(BudgetController, WaitsForFiveHundredSamples) {
  BudgetController controller(kBudget, {.p99_tbt = milliseconds(20)});
  Traffic traffic(controller);
  traffic.run(seconds(31), seconds(1));  // 480 of them until it looks
  EXPECT_EQ(controller.budget(), kBudget);
  traffic.run(seconds(30), seconds(1));
  EXPECT_EQ(controller.budget(), kBudget * 95 / 100);
}

// The first token of each of 800 sequences comes 80 ms after it arrived. It looks twice: after 30 s
// there are too few.
TEST(BudgetController, HoldsTimesToTheFirstToken) {
  BudgetController controller(kBudget, {.p99_ttft = milliseconds(40)});
  Nanos now{0};
  for (int64_t id = 1; id <= 800; ++id) {
    std::vector<SequenceView> running(1, decode(id, 100));
    running[0].state = SequenceState::kPrefilling;
    running[0].computed_tokens = 0;
    running[0].arrived = now;
    running.push_back(decode(1000, 10, ServiceClass::kBestEffort));
    SystemView view;
    view.running = running;
    for (const Nanos wait : {milliseconds(30), milliseconds(50)}) {
      now += wait;
      view.now = now;
      running[0].known_tokens += wait == milliseconds(50) ? 1 : 0;
      controller.observe(view);
      controller.planned(milliseconds(2), {});
    }
  }
  EXPECT_EQ(controller.budget(), kBudget * 95 / 100);
}

// What a user waits for the next token counts, also where the sequence was computed anew meanwhile.
TEST(BudgetController, AGapWithADropInItIsTheWholeGap) {
  BudgetController controller(kBudget, {.mean_tbt = milliseconds(10)});
  Nanos now{0};
  int32_t known = 10;
  const auto look = [&](std::vector<SequenceView> running) {
    running.push_back(decode(1000, 10, ServiceClass::kBestEffort));
    SystemView view;
    view.now = now;
    view.running = running;
    controller.observe(view);
  };
  look({decode(1, known)});
  while (now < seconds(40)) {
    const std::vector<SequenceId> dropped = {SequenceId{1}};
    controller.planned(milliseconds(2), dropped);
    now += milliseconds(5);
    look({});
    now += milliseconds(5);
    SequenceView again = decode(1, known);
    again.computed_tokens = 0;
    again.state = SequenceState::kPrefilling;
    look({again});
    now += milliseconds(10);
    look({decode(1, ++known)});
  }
  // Every gap is 20 ms. Were the sequence new each time, there would be no gaps at all.
  EXPECT_EQ(controller.budget(), kBudget * 95 / 100);
}

}  // namespace
}  // namespace tandem
