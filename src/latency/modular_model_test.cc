#include "latency/modular_model.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "latency/questions.h"

namespace tandem::latency {
namespace {

using std::chrono::microseconds;

ModularCosts tiled_costs() {
  ModularCosts costs;
  costs.layers = 4;
  costs.fixed = 20'000;
  costs.dense = *Ladder::through({{1, 1e6}, {16, 1.1e6}, {17, 1.5e6}, {256, 4e6}});
  costs.first_stage_share = 0.1;
  costs.head = *Ladder::through({{1, 2e5}, {64, 3e5}});
  costs.prefill = {.per_pair = 2, .per_row = 100, .per_slice = 1000, .fixed = 5000};
  costs.decode = {.per_context = 10, .per_row = 500, .fixed = 3000};
  costs.per_visit = 50;
  return costs;
}

ModularModel tiled_model() { return *ModularModel::create(tiled_costs()); }

TEST(StepShape, CountsSlicesAsTheyAreAdded) {
  StepShape shape;
  EXPECT_TRUE(shape.empty());
  shape.add_prefill(100, 3, 0);  // attends to 101, 102, 103
  EXPECT_EQ(shape.prefill_pairs, 306);
  EXPECT_EQ(shape.prefix_products, 300);
  EXPECT_EQ(shape.logit_rows, 0);
  shape.add_decode(41);
  shape.add_prefill(0, 2, 1);
  EXPECT_FALSE(shape.empty());
  EXPECT_EQ(shape.rows(), 6);
  EXPECT_EQ(shape.prefill_slices, 2);
  EXPECT_EQ(shape.decode_context, 41);
  EXPECT_EQ(shape.logit_rows, 2);
  EXPECT_EQ(regime_of(shape), Regime::kMixed);
}

TEST(StepShape, HoldsTheLongestPromptsThatThereAre) {
  StepShape shape;
  for (int i = 0; i < 16; ++i) {
    shape.add_prefill(100'000'000, 1'000'000, 1);
  }
  EXPECT_GT(shape.prefill_pairs, int64_t{16} * 100'000'000 * 1'000'000);
}

TEST(ModularModel, AStepIsTheSumOfItsModules) {
  const ModularModel model = tiled_model();
  StepShape shape;
  shape.add_decode(100);
  shape.add_decode(50);
  shape.add_prefill(10, 14, 1);
  const double pairs = 14 * 10 + 14 * 15 / 2;
  const double expected = 20'000 + 1.1e6 + (5000 + 2 * pairs + 100 * 14 + 1000) +
                          (3000 + 10 * 150 + 500 * 2) + (2e5 + 1e5 * 2 / 63);
  EXPECT_NEAR(static_cast<double>(model.step_time(shape).count()), expected, 1);
}

TEST(ModularModel, ItsPartsAddUpToTheStep) {
  const ModularModel model = tiled_model();
  StepShape shape;
  shape.add_decode(100);
  shape.add_prefill(10, 14, 1);
  shape.visits = 8;
  shape.visitor_logits = 2;
  const StepParts parts = model.parts(shape).value();
  const Nanos layer = parts.dense + parts.prefill_attention + parts.decode_attention;
  const Nanos sum = parts.fixed + 4 * layer + parts.head + parts.visits;
  EXPECT_NEAR(static_cast<double>(sum.count()), static_cast<double>(model.step_time(shape).count()),
              10);
  EXPECT_EQ(parts.visits, Nanos{500});
  EXPECT_EQ(parts.decode_attention, Nanos{(3000 + 10 * 100 + 500) / 4});
  EXPECT_EQ(model.parts({})->dense, Nanos{0});
}

// By hand: 14 rows and 3 visitors beside them, and at three of four stages 16 rows of a second
// lane.
TEST(ModularModel, ASecondLaneReadsTheWeightsAgain) {
  const ModularModel model = tiled_model();
  StepShape shape;
  shape.add_prefill(0, 13, 1);
  shape.add_decode(100);
  shape.visits = 12;
  shape.visitor_logits = 3;
  const Nanos one_lane = model.step_time(shape);
  shape.has_lanes = true;
  shape.visits += 48;
  shape.second_visits = 48;
  shape.second_stages = 3;
  shape.visitor_logits += 16;
  shape.second_logits = 16;
  const double second = 1.1e6 * 3 / 4 + (2e5 + 1e5 * 15 / 63) + 50 * (48 + 16);
  EXPECT_NEAR(static_cast<double>((model.step_time(shape) - one_lane).count()), second, 2);
  const StepParts parts = model.parts(shape).value();
  const Nanos layer = parts.dense + parts.prefill_attention + parts.decode_attention;
  EXPECT_NEAR(static_cast<double>((parts.fixed + 4 * layer + parts.head + parts.visits).count()),
              static_cast<double>(model.step_time(shape).count()), 10);
}

TEST(ModularModel, NothingTakesNoTime) {
  EXPECT_EQ(tiled_model().step_time({}), Nanos{0});
  EXPECT_EQ(tiled_model().visit_time({.stage = 1, .rows = 4}, 0), Nanos{0});
}

TEST(ModularModel, TheLastAttentionIsLeftOutWhereNothingIsSampled) {
  const ModularModel model = tiled_model();
  StepShape inside;
  inside.add_prefill(0, 16, 0);
  const double attention = 5000 + 2 * 136 + 100 * 16 + 1000;
  EXPECT_NEAR(static_cast<double>(model.step_time(inside).count()),
              20'000 + 1.1e6 + attention * 3 / 4, 1);
}

TEST(ModularModel, StagesAddUpToTheStep) {
  const ModularModel model = tiled_model();
  StepShape shape;
  shape.add_decode(1000);
  shape.add_prefill(0, 30, 1);
  Nanos before = model.time_before_stage(shape, 0);
  EXPECT_EQ(before, microseconds(20));
  for (int32_t stage = 1; stage <= model.layers(); ++stage) {
    EXPECT_GT(model.time_before_stage(shape, stage), before);
    before = model.time_before_stage(shape, stage);
  }
  const double head = 2e5 + 1e5 * 1 / 63;
  EXPECT_NEAR(static_cast<double>((model.step_time(shape) - before).count()), head, 2);
}

TEST(ModularModel, VisitsOfAllStagesCostWhatTheWholeStepGainsByThem) {
  const ModularModel model = tiled_model();
  StepShape shape;
  for (int i = 0; i < 15; ++i) {
    shape.add_decode(100);
  }
  StepShape with = shape;
  with.visits = 4 * 8;
  with.visitor_logits = 8;
  Nanos sum{0};
  for (int32_t stage = 0; stage <= 4; ++stage) {
    const int64_t rows = stage == 4 ? shape.logit_rows : shape.rows();
    sum += model.visit_time({.stage = stage, .rows = rows}, 8);
  }
  const Nanos gain = model.step_time(with) - model.step_time(shape);
  EXPECT_NEAR(static_cast<double>(sum.count()), static_cast<double>(gain.count()), 5);
  // The jump of the tiles between 16 and 17 rows is in it, and costs the first stage its share.
  EXPECT_GT(gain, microseconds(400));
  EXPECT_LT(model.visit_time({.stage = 0, .rows = 15}, 8),
            model.visit_time({.stage = 1, .rows = 15}, 8));
}

TEST(ModularModel, OneLayerHasItsDenseTimeInItsFirstStage) {
  const ModularModel model = simple_model({.layers = 1, .per_row = microseconds(10)});
  StepShape shape;
  shape.add_decode(1);
  EXPECT_EQ(model.time_before_stage(shape, 1), microseconds(10));
  EXPECT_EQ(model.visit_time({.stage = 0, .rows = 1}, 3), microseconds(30));
}

TEST(ModularModel, MoreIsNeverCheaper) {
  const ModularModel model = tiled_model();
  std::mt19937 random(5);
  const auto below = [&](int32_t most) {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(most));
  };
  for (int round = 0; round < 2000; ++round) {
    StepShape shape;
    for (int32_t i = below(8); i > 0; --i) {
      shape.add_decode(1 + below(3000));
    }
    for (int32_t i = below(4); i > 0; --i) {
      shape.add_prefill(below(2000), 1 + below(300), below(2));
    }
    shape.visits = below(50);
    const Nanos time = model.step_time(shape);
    StepShape more = shape;
    switch (below(4)) {
      case 0:
        more.add_decode(1 + below(3000));
        break;
      case 1:
        more.add_prefill(below(2000), 1 + below(300), below(2));
        break;
      case 2:
        more.visits += 1 + below(20);
        break;
      default:
        more.decode_context += more.decode_rows > 0 ? below(100) : 0;
        more.logit_rows += below(3);
    }
    ASSERT_GE(model.step_time(more), time) << "round " << round;
  }
}

TEST(ModularModel, RefusesCostsThatCannotBeAndNamesThem) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ModularCosts costs = tiled_costs();
  costs.prefill.per_pair = -1e-9;
  EXPECT_NE(ModularModel::create(costs).error().message.find("prefill.per_pair"),
            std::string::npos);
  costs = tiled_costs();
  costs.decode.per_context = nan;
  EXPECT_NE(ModularModel::create(costs).error().message.find("decode.per_context"),
            std::string::npos);
  costs = tiled_costs();
  costs.first_stage_share = 1.01;
  EXPECT_FALSE(ModularModel::create(costs).ok());
  costs = tiled_costs();
  costs.layers = 0;
  EXPECT_FALSE(ModularModel::create(costs).ok());
  costs = tiled_costs();
  costs.fixed = 1e300;
  EXPECT_FALSE(ModularModel::create(costs).ok());
  costs = tiled_costs();
  costs.dense = *Ladder::through({{1, 1e300}});
  EXPECT_FALSE(ModularModel::create(costs).ok());
}

TEST(SimpleModel, IsWhatItsNumbersSay) {
  const ModularModel model = simple_model({.layers = 2,
                                           .fixed = microseconds(100),
                                           .per_row = microseconds(10),
                                           .per_logit = microseconds(5),
                                           .per_context_nanos = 2,
                                           .per_pair_nanos = 1});
  StepShape shape;
  shape.add_decode(500);
  shape.add_decode(500);
  EXPECT_EQ(model.step_time(shape), microseconds(100 + 20 + 10 + 2));
}

}  // namespace
}  // namespace tandem::latency
