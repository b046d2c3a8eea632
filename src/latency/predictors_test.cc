// The two other predictors: what they say, that they are monotone, what they refuse.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "latency/accuracy.h"
#include "latency/regression_model.h"
#include "latency/table_model.h"

namespace tandem::latency {
namespace {

RegressionCosts regression_costs() {
  return {.layers = 3,
          .fixed = 1000,
          .prefill_rows = 100,
          .decode_context = 1,
          .prefill_rows_squared = 0.5,
          .decode_context_squared = 0.001,
          .prefill_slices = 50,
          .decode_rows = 200,
          .prefix_products = 0.1};
}

TableCosts table_costs() {
  TableCosts costs;
  costs.layers = 3;
  costs.prefill = *Ladder::through({{1, 1000}, {100, 20'000}});
  costs.prefix_products = 0.5;
  costs.decode = {
      {.sequences = 1, .by_context = *Ladder::through({{16, 1000}, {1024, 2000}})},
      {.sequences = 4, .by_context = *Ladder::through({{64, 1400}, {4096, 6000}})},
      {.sequences = 16, .by_context = *Ladder::through({{256, 3000}, {16384, 17'000}})}};
  return costs;
}

StepShape random_shape(std::mt19937& random) {
  const auto below = [&](uint32_t most) { return static_cast<int32_t>(random() % most); };
  StepShape shape;
  for (int32_t i = below(20); i > 0; --i) {
    shape.add_decode(1 + below(2000));
  }
  for (int32_t i = below(4); i > 0; --i) {
    shape.add_prefill(below(2000), 1 + below(300), below(2));
  }
  shape.visits = below(30);
  return shape;
}

void expect_monotone(const StepTimeModel& model) {
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    const StepShape shape = random_shape(random);
    StepShape more = shape;
    switch (random() % 4) {
      case 0:
        more.add_decode(1 + static_cast<int64_t>(random() % 3000));
        break;
      case 1:
        more.add_prefill(static_cast<int64_t>(random() % 1000),
                         1 + static_cast<int32_t>(random() % 100), 1);
        break;
      case 2:
        more.visits += 1 + static_cast<int64_t>(random() % 30);
        break;
      default:
        more.decode_context += more.decode_rows > 0 ? 100 : 0;
    }
    ASSERT_GE(model.step_time(more), model.step_time(shape)) << "round " << round;
  }
  for (int64_t visitors = 0; visitors < 40; ++visitors) {
    EXPECT_GE(model.visit_time({.stage = 1, .rows = 3}, visitors + 1),
              model.visit_time({.stage = 1, .rows = 3}, visitors));
  }
}

TEST(RegressionModel, IsLinearInItsFeatures) {
  const RegressionModel model = *RegressionModel::create(regression_costs());
  EXPECT_FALSE(model.parts({}).has_value()) << "it knows whole steps only";
  StepShape shape;
  shape.add_decode(50);
  shape.add_decode(30);
  shape.add_prefill(20, 10, 0);
  EXPECT_EQ(model.step_time(shape).count(),
            std::llround(1000 + 100 * 10 + 80 + 0.5 * 100 + 0.001 * 6400 + 50 + 400 + 0.1 * 200));
  EXPECT_EQ(model.step_time({}), Nanos{0});
  EXPECT_EQ(model.time_before_stage(shape, 0), Nanos{0});
  EXPECT_EQ(model.time_before_stage(shape, 2), model.step_time(shape) / 2);
}

TEST(RegressionModel, MoreIsNeverCheaper) {
  expect_monotone(*RegressionModel::create(regression_costs()));
}

TEST(RegressionModel, RefusesCoefficientsThatCannotBe) {
  RegressionCosts costs = regression_costs();
  costs.decode_context_squared = -1;
  EXPECT_NE(RegressionModel::create(costs).error().message.find("decode_context_squared"),
            std::string::npos);
  costs = regression_costs();
  costs.prefix_products = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(RegressionModel::create(costs).ok());
}

TEST(TableModel, IsTheTableAtItsPoints) {
  const TableModel model = *TableModel::create(table_costs());
  StepShape decodes;
  for (int i = 0; i < 4; ++i) {
    decodes.add_decode(1024);
  }
  EXPECT_EQ(model.step_time(decodes), Nanos{6000});
  StepShape one;
  one.add_decode(16);
  EXPECT_EQ(model.step_time(one), Nanos{1000});
  StepShape prompt;
  prompt.add_prefill(0, 100, 1);
  EXPECT_EQ(model.step_time(prompt), Nanos{20'000});
  StepShape chunk;
  chunk.add_prefill(10, 100, 1);
  EXPECT_EQ(model.step_time(chunk), Nanos{20'500});
}

TEST(TableModel, InterpolatesBetweenNumbersOfSequences) {
  const TableModel model = *TableModel::create(table_costs());
  StepShape two;
  two.add_decode(512);
  two.add_decode(512);
  const double high = 1400 + (6000.0 - 1400) * (1024 - 64) / (4096 - 64);
  EXPECT_NEAR(static_cast<double>(model.step_time(two).count()), 2000 + (high - 2000) / 3, 1);
}

TEST(TableModel, MoreIsNeverCheaper) { expect_monotone(*TableModel::create(table_costs())); }

TEST(TableModel, BeyondItsLastRowMoreIsNeverCheaperEither) {
  TableCosts costs = table_costs();
  costs.decode = {{.sequences = 1, .by_context = *Ladder::through({{16, 100}, {1024, 9000}})},
                  {.sequences = 4, .by_context = *Ladder::through({{64, 9000}, {4096, 9500}})}};
  const TableModel model = *TableModel::create(costs);
  expect_monotone(model);
  StepShape shape;
  for (int i = 0; i < 7; ++i) {
    shape.add_decode(i == 0 ? 58 : 1);
  }
  const double first = 100 + 8900.0 * (64 - 16) / (1024 - 16);
  EXPECT_NEAR(static_cast<double>(model.step_time(shape).count()), 9000 + (9000 - first), 1);
}

TEST(TableModel, RefusesTablesThatCannotBe) {
  TableCosts costs = table_costs();
  costs.decode.clear();
  EXPECT_FALSE(TableModel::create(costs).ok());
  costs = table_costs();
  std::swap(costs.decode[0], costs.decode[1]);
  EXPECT_FALSE(TableModel::create(costs).ok());
  costs = table_costs();
  costs.prefill = {};
  EXPECT_FALSE(TableModel::create(costs).ok());
}

TEST(Accuracy, CountsAsThePaperDoes) {
  AccuracyMeter meter;
  for (int i = 1; i <= 100; ++i) {
    meter.add(100.0 - i, 100);  // met to 99 %, 98 %, .. 0 %
  }
  const Accuracy accuracy = meter.accuracy();
  EXPECT_EQ(accuracy.batches, 100);
  EXPECT_NEAR(accuracy.mean, 0.495, 1e-9);
  EXPECT_NEAR(accuracy.p90, 0.09, 1e-9);
  EXPECT_NEAR(accuracy.p99, 0.0, 1e-9);
  EXPECT_EQ(AccuracyMeter().accuracy().batches, 0);
}

}  // namespace
}  // namespace tandem::latency
