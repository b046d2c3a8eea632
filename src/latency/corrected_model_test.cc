#include "latency/corrected_model.h"

#include <gtest/gtest.h>

#include <random>

#include "latency/modular_model.h"

namespace tandem::latency {
namespace {

using std::chrono::microseconds;

CorrectedModel corrected() {
  return CorrectedModel(std::make_unique<ModularModel>(
      simple_model({.layers = 2, .fixed = microseconds(100), .per_row = microseconds(10)})));
}

StepShape decodes(int32_t count) {
  StepShape shape;
  for (int32_t i = 0; i < count; ++i) {
    shape.add_decode(100);
  }
  return shape;
}

StepShape mixed(int32_t rows) {
  StepShape shape = decodes(2);
  shape.add_prefill(0, rows, 0);
  return shape;
}

TEST(CorrectedModel, StartsAsTheModelUnderIt) {
  const CorrectedModel model = corrected();
  EXPECT_EQ(model.step_time(decodes(10)), microseconds(200));
  EXPECT_EQ(model.step_time({}), Nanos{0});
  EXPECT_EQ(model.name(), "modular");
}

TEST(CorrectedModel, ADrillsErrorStaysHoweverMuchIsLearnt) {
  CorrectedModel model(std::make_unique<ModularModel>(simple_model(
                           {.layers = 2, .fixed = microseconds(100), .per_row = microseconds(10)})),
                       1.5);
  EXPECT_EQ(model.step_time(decodes(10)), microseconds(300));
  for (int i = 0; i < 1000; ++i) {
    model.observe(decodes(10), microseconds(200));
  }
  EXPECT_EQ(model.step_time(decodes(10)), microseconds(300));
}

TEST(CorrectedModel, CorrectsThePartsOfAStepAlike) {
  CorrectedModel model = corrected();
  for (int i = 0; i < 200; ++i) {
    model.observe(decodes(10), microseconds(300));
  }
  const double factor = model.correction(decodes(10));
  EXPECT_GT(factor, 1.4);
  const StepParts parts = model.parts(decodes(10)).value();
  EXPECT_NEAR(static_cast<double>(parts.fixed.count()), 100'000 * factor, 1);
  EXPECT_NEAR(static_cast<double>(parts.dense.count()), 50'000 * factor, 1);
}

TEST(CorrectedModel, BendsAModelThatIsOffByHalfAndThatRegimeAlone) {
  for (const double truth : {0.55, 0.8, 1.5, 1.9}) {
    CorrectedModel model = corrected();
    for (int i = 0; i < 400; ++i) {
      model.observe(decodes(10), Nanos{static_cast<int64_t>(200'000 * truth)});
    }
    EXPECT_NEAR(to_millis(model.step_time(decodes(10))), 0.2 * truth, 0.002);
    StepShape prefill;
    prefill.add_prefill(0, 10, 1);
    EXPECT_EQ(model.step_time(prefill), microseconds(200)) << "of another regime";
  }
}

TEST(CorrectedModel, StaysWithinItsBounds) {
  CorrectedModel model = corrected();
  for (int i = 0; i < 2000; ++i) {
    model.observe(decodes(10), microseconds(200'000));
  }
  EXPECT_EQ(model.step_time(decodes(10)), microseconds(400));
  for (int i = 0; i < 4000; ++i) {
    model.observe(decodes(10), microseconds(1));
  }
  EXPECT_EQ(model.step_time(decodes(10)), microseconds(100));
}

TEST(CorrectedModel, OneStalledStepChangesLittle) {
  CorrectedModel model = corrected();
  for (int i = 0; i < 100; ++i) {
    model.observe(decodes(10), microseconds(200));
  }
  model.observe(decodes(10), std::chrono::seconds(10));
  EXPECT_LT(model.step_time(decodes(10)), microseconds(202));
}

TEST(CorrectedModel, FollowsAMachineThatIsNoisyInTheMean) {
  CorrectedModel model = corrected();
  std::mt19937 random(1);
  std::uniform_real_distribution<double> noise(1.1, 1.3);
  for (int i = 0; i < 1000; ++i) {
    model.observe(decodes(10), Nanos{static_cast<int64_t>(200'000 * noise(random))});
  }
  EXPECT_NEAR(model.correction(decodes(10)), 1.2, 0.04);
}

TEST(CorrectedModel, ALittlePromptIsNeverCheaperThanNone) {
  CorrectedModel model = corrected();
  for (int i = 0; i < 300; ++i) {
    model.observe(decodes(2), microseconds(180));  // dearer than believed
    model.observe(mixed(10), microseconds(150));   // cheaper
  }
  ASSERT_LT(model.correction(mixed(10)), 0.8);
  Nanos before = model.step_time(decodes(2));
  for (int32_t rows = 1; rows < 100; ++rows) {
    EXPECT_GE(model.step_time(mixed(rows)), before) << rows;
    before = model.step_time(mixed(rows));
  }
}

TEST(CorrectedModel, VisitorsAreNeverFree) {
  CorrectedModel model = corrected();
  StepShape visited = decodes(10);
  visited.visits = 8;
  for (int i = 0; i < 300; ++i) {
    model.observe(visited, microseconds(130));
  }
  EXPECT_EQ(model.step_time(decodes(10)), microseconds(200));
  EXPECT_EQ(model.step_time(visited), microseconds(200)) << "as without them, at least";
  visited.visits = 40;
  EXPECT_GT(model.visit_time({.stage = 1, .rows = 10}, 4), Nanos{0});
}

StepShape in_lanes(int32_t residents, int64_t second) {
  StepShape shape = decodes(residents);
  shape.has_lanes = true;
  shape.visits = 2 * second;
  shape.second_visits = 2 * second;
  shape.second_stages = 2;
  return shape;
}

TEST(CorrectedModel, StepsWithLanesTeachNothingOfThoseWithout) {
  CorrectedModel model = corrected();
  StepShape grouped = decodes(10);
  grouped.visits = 8;
  const Nanos before = model.step_time(grouped);
  const Nanos visit = model.visit_time({.stage = 1, .rows = 10}, 4);
  for (int i = 0; i < 300; ++i) {
    model.observe(in_lanes(10, 4), microseconds(400));
  }
  EXPECT_GT(model.correction(in_lanes(10, 4)), 1.4);
  EXPECT_EQ(model.step_time(grouped), before);
  EXPECT_EQ(model.visit_time({.stage = 1, .rows = 10}, 4), visit);
  EXPECT_EQ(model.step_time(decodes(10)), microseconds(200));
}

TEST(CorrectedModel, StepsWithLanesBeginWithWhatThoseWithoutVisitorsTaught) {
  CorrectedModel model = corrected();
  for (int i = 0; i < 400; ++i) {
    model.observe(decodes(10), microseconds(300));
  }
  const double taught = model.correction(decodes(10));
  EXPECT_GT(taught, 1.4);
  EXPECT_EQ(model.correction(in_lanes(10, 4)), taught);
  model.observe(in_lanes(10, 4), Nanos{static_cast<int64_t>(240'000 * taught)});
  EXPECT_NEAR(model.correction(in_lanes(10, 4)), taught, 0.01);
}

TEST(CorrectedModel, StepsOfVisitorsAloneTeachNothing) {
  CorrectedModel model = corrected();
  StepShape alone;
  alone.visits = 4;
  for (int i = 0; i < 300; ++i) {
    model.observe(alone, std::chrono::seconds(1));
  }
  EXPECT_EQ(model.correction(alone), 1);
}

TEST(CorrectedModel, NonsenseTeachesNothing) {
  CorrectedModel model = corrected();
  model.observe(decodes(10), Nanos{0});
  model.observe(decodes(10), Nanos{-5});
  model.observe({}, microseconds(5));
  EXPECT_EQ(model.step_time(decodes(10)), microseconds(200));
}

}  // namespace
}  // namespace tandem::latency
