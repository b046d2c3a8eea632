#include "scheduler/lane_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "latency/corrected_model.h"
#include "latency/modular_model.h"

namespace tandem {
namespace {

using std::chrono::microseconds;

constexpr int32_t kTimedLayers = 4;

// Of a layer: 10 us for each row, 100 ns for each token that a decode attends to, 1 ns for each
// pair of a prompt. Beside the layers 1 ms.
const latency::ModularModel& lane_model() {
  static const latency::ModularModel made = latency::simple_model({.layers = kTimedLayers,
                                                                   .fixed = microseconds(1000),
                                                                   .per_row = microseconds(40),
                                                                   .per_context_nanos = 400,
                                                                   .per_pair_nanos = 4});
  return made;
}

latency::HostTimes host_of(double per_context_nanos) {
  latency::HostTimes host;
  host.attention.per_context_nanos = per_context_nanos;
  host.launch = {.per_group_nanos = 8000, .per_visit_nanos = 500, .per_lane_stage_nanos = 2000};
  return host;
}

// Two decodes that attend to 100 tokens each and a prompt of 20 beside one visitor of 50; three
// visitors of 150 together in the second lane.
Lanes some_lanes() {
  Lanes lanes;
  lanes[0].residents.add_decode(100);
  lanes[0].residents.add_decode(100);
  lanes[0].residents.add_prefill(0, 20, 1);
  lanes[0].visitors = 1;
  lanes[0].context = 50;
  lanes[1].visitors = 3;
  lanes[1].context = 150;
  return lanes;
}

TEST(LaneTimes, ALanesPartsAreThoseOfItsRows) {
  const latency::HostTimes host = host_of(1000);
  const LaneModel lanes(lane_model(), &host, LaneWindows::kPaper);
  const LayerTimes times = lanes.times(some_lanes());
  EXPECT_EQ(times[0].dense, microseconds(230)) << "23 rows";
  EXPECT_EQ(times[0].decode_attention, microseconds(20));
  EXPECT_EQ(times[0].attention, Nanos{20'210}) << "and 210 pairs";
  EXPECT_EQ(times[0].host, microseconds(50));
  EXPECT_EQ(times[0].launch, Nanos{2500});
  EXPECT_EQ(times[1].dense, microseconds(30));
  EXPECT_EQ(times[1].attention, Nanos{0});
  EXPECT_EQ(times[1].host, microseconds(150));
  EXPECT_EQ(times[1].launch, Nanos{3500});
  EXPECT_EQ(lanes.times(Lane{}).dense, Nanos{0});
}

// Both inequalities by hand, for each of the three windows.
TEST(LaneTimes, SlackIsTheWindowLessTheHostsTime) {
  const latency::HostTimes host = host_of(1000);
  const Lanes both = some_lanes();
  const LaneSlack paper = LaneModel(lane_model(), &host, LaneWindows::kPaper).slack(both);
  EXPECT_EQ(paper.of_lane[0], microseconds(30 + 20 - 50));
  EXPECT_EQ(paper.of_lane[1], microseconds(230 - 150));
  const LaneSlack code = LaneModel(lane_model(), &host, LaneWindows::kCode).slack(both);
  EXPECT_EQ(code.of_lane[0], Nanos{30'000 + 20'210 - 2500 - 50'000});
  EXPECT_EQ(code.of_lane[1], Nanos{230'000 - 3500 - 150'000});
  EXPECT_EQ(code.least(), code.of_lane[0]) << "no sum is asked for";
  const LaneSlack real = LaneModel(lane_model(), &host, LaneWindows::kReal).slack(both);
  EXPECT_EQ(real.of_lane[0], code.of_lane[0]);
  EXPECT_EQ(real.of_lane[1], code.of_lane[1] + Nanos{20'210});
  EXPECT_EQ(real.of_both, Nanos{230'000 + 20'210 + 30'000 - 200'000});
}

TEST(LaneTimes, ALayerTakesAsLongAsTheLongerSideOfEachHalf) {
  const latency::HostTimes slow = host_of(4000);  // 600 us for the second lane, 200 for the first
  EXPECT_EQ(LaneModel(lane_model(), &slow, LaneWindows::kPaper).layers_time(some_lanes()),
            kTimedLayers * microseconds(600 + 200));
  const latency::HostTimes quick = host_of(10);
  const LaneModel hidden(lane_model(), &quick, LaneWindows::kPaper);
  EXPECT_EQ(hidden.layers_time(some_lanes()), kTimedLayers * Nanos{230'000 + 30'000 + 20'210});
  const LaneModel real(lane_model(), &quick, LaneWindows::kReal);
  EXPECT_EQ(real.layers_time(some_lanes()), hidden.layers_time(some_lanes()))
      << "where the host hides, both are what the accelerator takes";
  EXPECT_EQ(LaneModel(lane_model(), &slow, LaneWindows::kReal).layers_time(some_lanes()),
            kTimedLayers * microseconds(200 + 600))
      << "one host attends for both lanes";
}

// The accelerator waits for the way of a lane's rows and for the launch of its stage, too.
TEST(LaneTimes, ALayerIsLongerThanTheAcceleratorsWorkExactlyWhereTheHostDoesNotHide) {
  int hidden = 0;
  int longer = 0;
  for (double nanos = 10; nanos < 6000; nanos += 7) {
    latency::HostTimes host = host_of(nanos);
    host.to_host = {.alpha_nanos = 9000, .beta_nanos = 2};
    host.hop = {.to_host = 300, .from_host = 0};
    const LaneModel real(lane_model(), &host, LaneWindows::kReal);
    for (int64_t visitors = 0; visitors < 3; ++visitors) {
      Lanes lanes = some_lanes();
      lanes[0].visitors = visitors;
      lanes[0].context = 50 * visitors;
      const LayerTimes times = real.times(lanes);
      const Nanos accelerator = times[0].dense + times[0].attention + times[1].dense;
      const LaneSlack slack = real.slack(times);
      const bool hides = std::min({slack.of_lane[0], slack.of_lane[1], slack.of_both}) >= Nanos{0};
      EXPECT_EQ(real.layer_time(times) > accelerator, !hides) << nanos << ", " << visitors;
      ++(hides ? hidden : longer);
    }
  }
  EXPECT_GT(hidden, 50);
  EXPECT_GT(longer, 50);
}

TEST(LaneTimes, TheWholeStepIsItsLayersAndWhatIsBesideThem) {
  const LaneModel alone(lane_model(), nullptr, LaneWindows::kReal);
  Lane residents;
  residents.residents.add_decode(100);
  const Lanes lanes{residents, {}};
  EXPECT_EQ(alone.layers_time(residents) + alone.beside_layers(lanes),
            lane_model().step_time(residents.residents));
}

// Both lanes of a step are corrected by factors of steps with lanes, and visitors in groups change
// nothing in it.
TEST(LaneTimes, BothLanesAreCorrectedAlike) {
  latency::CorrectedModel corrected(std::make_unique<latency::ModularModel>(lane_model()));
  Lanes lanes;
  lanes[0].residents.add_decode(100);
  lanes[1].visitors = 1;
  latency::StepShape grouped = lanes[0].residents;
  grouped.visits = kTimedLayers;
  latency::StepShape with_lanes = grouped;
  with_lanes.has_lanes = true;
  with_lanes.second_visits = kTimedLayers;
  with_lanes.second_stages = kTimedLayers;
  for (int i = 0; i < 500; ++i) {
    corrected.observe(grouped, corrected.uncorrected().step_time(grouped) * 2);
    corrected.observe(with_lanes, corrected.uncorrected().step_time(with_lanes) * 5 / 4);
  }
  const LayerTimes times = LaneModel(corrected, nullptr, LaneWindows::kReal).times(lanes);
  EXPECT_NEAR(to_millis(times[0].dense), 0.0125, 0.0002);
  EXPECT_NEAR(to_millis(times[1].dense), 0.0125, 0.0002);
}

// A step with lanes computes its last stage twice.
TEST(LaneTimes, EachLaneHasAHeadOfItsOwn) {
  latency::ModularCosts costs = lane_model().costs();
  costs.head = latency::Ladder::through({{1, 50'000}, {64, 50'000}}).value();
  const latency::ModularModel flat = latency::ModularModel::create(std::move(costs)).value();
  const LaneModel lanes(flat, nullptr, LaneWindows::kReal);
  Lanes both = some_lanes();
  EXPECT_EQ(lanes.beside_layers(both), microseconds(1000 + 2 * 50));
  both[1] = {};
  EXPECT_EQ(lanes.beside_layers(both), microseconds(1000 + 50));
}

// What is planned is what the step is compared with when it has ended.
TEST(LaneTimes, AStepWhoseHostHidesTakesWhatItsShapeDoes) {
  latency::ModularCosts costs = lane_model().costs();
  costs.dense = latency::Ladder::through({{1, 400'000}, {100, 500'000}}).value();
  costs.head = latency::Ladder::through({{1, 50'000}, {64, 60'000}}).value();
  costs.per_visit = 100;
  const latency::ModularModel weights = latency::ModularModel::create(std::move(costs)).value();
  const LaneModel lanes(weights, nullptr, LaneWindows::kReal);
  const Lanes both = some_lanes();
  latency::StepShape shape = both[0].residents;
  shape.has_lanes = true;
  shape.visits = 4 * kTimedLayers;
  shape.visitor_logits = 4;
  shape.second_visits = 3 * kTimedLayers;
  shape.second_stages = kTimedLayers;
  shape.second_logits = 3;
  EXPECT_NEAR(to_millis(lanes.layers_time(both) + lanes.beside_layers(both)),
              to_millis(weights.step_time(shape)), 1e-5);
}

TEST(LaneTimes, TheRowsWayIsNotTheHostsToAttendIn) {
  latency::HostTimes host = host_of(1000);
  host.to_host = {.alpha_nanos = 3000, .beta_nanos = 2};
  host.from_host = {.alpha_nanos = 4000, .beta_nanos = 1};
  host.hop = {.to_host = 300, .from_host = 100};
  const Lanes both = some_lanes();
  const latency::HostTimes near = host_of(1000);
  const LaneSlack with = LaneModel(lane_model(), &host, LaneWindows::kReal).slack(both);
  const LaneSlack without = LaneModel(lane_model(), &near, LaneWindows::kReal).slack(both);
  EXPECT_EQ(with.of_lane[0], without.of_lane[0] - Nanos{7000 + 700});
  EXPECT_EQ(with.of_lane[1], without.of_lane[1] - Nanos{7000 + 3 * 700});
  EXPECT_EQ(with.of_both, without.of_both) << "the host attends for the other lane meanwhile";
  EXPECT_EQ(LaneModel(lane_model(), &host, LaneWindows::kCode).slack(both).of_lane,
            LaneModel(lane_model(), &near, LaneWindows::kCode).slack(both).of_lane)
      << "as published";
}

TEST(LaneTimes, AnUnknownHostTakesNoTime) {
  const LaneModel unknown(lane_model(), nullptr, LaneWindows::kCode);
  EXPECT_GE(unknown.slack(some_lanes()).least(), Nanos{0});
  EXPECT_EQ(unknown.times(some_lanes())[1].host, Nanos{0});
}

}  // namespace
}  // namespace tandem
