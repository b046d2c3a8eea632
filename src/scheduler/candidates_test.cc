#include "scheduler/candidates.h"

#include <gtest/gtest.h>

#include <vector>

#include "latency/modular_model.h"

namespace tandem {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int32_t kLayers = 3;

const latency::CorrectedModel& model() {
  static const latency::CorrectedModel made(
      std::make_unique<latency::ModularModel>(latency::simple_model(
          {.layers = kLayers, .fixed = milliseconds(1), .per_row = microseconds(10)})));
  return made;
}

SequenceView decode(int64_t id, ServiceClass service_class = ServiceClass::kLatencySensitive) {
  return {.id = SequenceId{id},
          .state = SequenceState::kDecoding,
          .service_class = service_class,
          .known_tokens = 20,
          .computed_tokens = 19,
          .held_blocks = 2,
          .own_blocks = 2};
}

SequenceView offloaded(int64_t id, SequenceState state) {
  SequenceView view = decode(id, ServiceClass::kBestEffort);
  view.state = state;
  view.tier = Tier::kHost;
  return view;
}

struct Scene {
  std::vector<SequenceView> running = {decode(1), decode(2)};
  std::vector<SequenceView> waiting = {{.id = SequenceId{3}, .known_tokens = 40, .choices = 2}};
  std::vector<SequenceView> parked = {offloaded(4, SequenceState::kParkedInFlight),
                                      offloaded(5, SequenceState::kParkedWaiting)};
  [[nodiscard]] SystemView view() const {
    return {.running = running,
            .offloaded = parked,
            .waiting = waiting,
            .budget = {.tokens = 200,
                       .logit_rows = 64,
                       .sequences = 16,
                       .free_blocks = 100,
                       .total_blocks = 120,
                       .host_free_blocks = 100,
                       .host_total_blocks = 100,
                       .block_tokens = 16}};
  }
};
constexpr CandidateRules kNeverBack{.onload_above = 100};

TEST(Candidates, ResidentsAreCreditedWithTheirSamples) {
  const Scene scene;
  const Candidate made = make_resident(scene.view(), {.step_times = &model()}, kNeverBack);
  EXPECT_EQ(made.plan.slices.size(), 3U);
  EXPECT_DOUBLE_EQ(made.tokens, 4) << "two decodes and the two choices of a prompt that ends";
  EXPECT_EQ(made.time, model().step_time(made.shape));
  EXPECT_EQ(made.shape.rows(), 42);
  EXPECT_EQ(made.plan.mode, StepMode::kGroups);
}

TEST(Candidates, AResultThatJoinsIsAPartOfAToken) {
  const Scene scene;
  SystemView view = scene.view();
  const Beliefs beliefs{.step_times = &model()};
  const Candidate resident = make_resident(view, beliefs, kNeverBack);
  const Candidate one = make_visitors(view, beliefs, kNeverBack);  // the token under way
  EXPECT_DOUBLE_EQ(one.tokens, resident.tokens + 1.0 / (kLayers + 1));
  EXPECT_GE(one.time, resident.time);
  view.ready = 8;
  const Candidate counted = make_overlap(view, beliefs, kNeverBack);
  EXPECT_DOUBLE_EQ(counted.tokens, resident.tokens + 2);
  EXPECT_GT(counted.time, resident.time);
  EXPECT_EQ(counted.plan.slices.size(), resident.plan.slices.size());
}

TEST(Candidates, InLanesEachOffloadedTokenGoesThroughAllStages) {
  Scene scene;
  const Beliefs beliefs{.step_times = &model()};
  const Candidate resident = make_resident(scene.view(), beliefs, kNeverBack);
  const Candidate lanes = make_lanes(scene.view(), beliefs, kNeverBack);
  EXPECT_EQ(lanes.plan.mode, StepMode::kLanes);
  EXPECT_TRUE(lanes.plan.first_lane.empty()) << "the residents have the first lane";
  EXPECT_DOUBLE_EQ(lanes.tokens, resident.tokens + 2);
  scene.running.clear();
  scene.waiting.clear();
  const Candidate alone = make_lanes(scene.view(), beliefs, kNeverBack);
  EXPECT_EQ(alone.plan.first_lane, std::vector<SequenceId>{SequenceId{4}});
  EXPECT_DOUBLE_EQ(alone.tokens, 2);
}

TEST(Candidates, LanesTakeAtLeastAsLongAsTheHostAttends) {
  const Scene scene;
  latency::HostTimes host;
  host.attention = {.per_context_nanos = 1e6, .per_row_nanos = 0, .fixed_nanos = 0};
  const Candidate lanes =
      make_lanes(scene.view(), {.step_times = &model(), .host_times = &host}, kNeverBack);
  EXPECT_EQ(lanes.time, kLayers * milliseconds(40)) << "two tokens that attend to 20 each";
}

TEST(Candidates, WithoutBeliefsAPlanHasNoTime) {
  const Scene scene;
  const Candidate made = make_visitors(scene.view(), {}, kNeverBack);
  EXPECT_FALSE(made.time.has_value());
  EXPECT_DOUBLE_EQ(made.tokens, 4);
}

}  // namespace
}  // namespace tandem
