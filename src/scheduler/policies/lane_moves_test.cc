// Plans of the policies of two lanes for tokens that are under way on the host when a step is
// planned, and with sequences that plans have held for long.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "latency/modular_model.h"
#include "scheduler/policies/apex.h"
#include "scheduler/policies/neo.h"
#include "support/lanes_scene.h"

namespace tandem {
namespace {

using ::testing::Contains;
using testing::decode;
using ::testing::ElementsAre;
using testing::host_of;
using testing::ids;
using testing::in_flight;
using ::testing::IsEmpty;
using testing::model;
using ::testing::Not;
using testing::parked;
using testing::Scene;
using testing::with_residents;

std::vector<std::pair<int64_t, int32_t>> moves(const StepPlan& plan) {
  std::vector<std::pair<int64_t, int32_t>> made;
  for (const LaneMove& move : plan.lane_moves) {
    made.emplace_back(raw(move.sequence), move.lane);
  }
  return made;
}

struct Kind {
  std::string name;
  NeoRules rules;
};

const Kind kNeoKind{.name = "neo", .rules = {.windows = LaneWindows::kPaper}};
const Kind kNeoPlusKind{
    .name = "neo_plus",
    .rules = {
        .windows = LaneWindows::kReal, .caps_steps = true, .repaired = true, .patience_steps = 8}};
const Kind kApexKind{.name = "apex",
                     .rules = {.windows = LaneWindows::kPaper, .join = HostJoin::kByApex}};
const Kind kApexPlusKind{.name = "apex_plus",
                         .rules = {.windows = LaneWindows::kReal,
                                   .caps_steps = true,
                                   .repaired = true,
                                   .patience_steps = 8,
                                   .join = HostJoin::kByApexPlus,
                                   .mixed_window = MixedWindow::kReal}};

class Planner {
 public:
  Planner(const Kind& kind, double host_per_context_nanos,
          const latency::CorrectedModel& times = model())
      : rules_(kind.rules),
        host_(host_of(host_per_context_nanos)),
        policy_(rules_, kNeo, Beliefs{.step_times = &times, .host_times = &host_}) {}
  StepPlan plan(const Scene& scene, int64_t step = 1) {
    SystemView view = scene.view();
    view.step = step;
    return policy_.plan(view);
  }

 private:
  const NeoRules rules_;
  const latency::HostTimes host_;
  NeoPolicy policy_;
};

class LaneMoves : public ::testing::TestWithParam<Kind> {};

// The host is fast and the second lane's rows cost what they cost in the first.
TEST_P(LaneMoves, PartlyAdvancedTokensGoIntoTheSecondLane) {
  Planner planner(GetParam(), 100);
  const Scene scene = with_residents({in_flight(11, 60, 2), in_flight(12, 60, 1, 1),
                                      in_flight(13, 60, 3), parked(14, 60), parked(15, 60)});
  const StepPlan plan = planner.plan(scene);
  ASSERT_EQ(plan.mode, StepMode::kLanes);
  EXPECT_THAT(moves(plan), ElementsAre(std::pair(11, 1), std::pair(13, 1)));
}

TEST_P(LaneMoves, NoneInAStepWithoutLanes) {
  Planner planner(GetParam(), 1e6);  // the host could attend for none of them in a second
  const StepPlan plan =
      planner.plan(with_residents({in_flight(11, 900, 2), in_flight(12, 900, 1), parked(13, 900)}));
  ASSERT_EQ(plan.mode, StepMode::kGroups);
  EXPECT_THAT(plan.lane_moves, IsEmpty());
}

// Nothing is held up by them, and both lanes are used.
TEST_P(LaneMoves, NoneWithoutResidents) {
  Planner planner(GetParam(), 100);
  Scene scene = with_residents({in_flight(11, 60, 2), in_flight(12, 60, 1, 1), parked(13, 60)});
  scene.running.clear();
  for (SequenceView& sequence : scene.offloaded) {
    sequence.transfer_blocks = 400;  // does not return
  }
  const StepPlan plan = planner.plan(scene);
  ASSERT_EQ(plan.mode, StepMode::kLanes);
  EXPECT_THAT(plan.lane_moves, IsEmpty());
}

TEST_P(LaneMoves, ASequenceHeldForTheMaximumIsLetInAndCounted) {
  Kind kind = GetParam();
  kind.rules.max_held_steps = 20;
  kind.rules.patience_steps = 1000;
  Planner planner(kind, 20'000);
  // The short sequence hides in a lane and the long one does not: 60 ms of a step of 3.6 ms.
  const auto scene_with = [](int32_t step) {
    return with_residents({parked(11, 3000), parked(12, 1 + step % 2)});
  };
  std::vector<int64_t> let_in;
  for (int32_t step = 1; step <= 60; ++step) {
    const StepPlan plan = planner.plan(scene_with(step), step);
    for (const SequenceId id : plan.let_in) {
      let_in.push_back(step);
      EXPECT_EQ(id, SequenceId{11});
      EXPECT_THAT(ids(plan.hold), Not(Contains(11)));
      EXPECT_THAT(ids(plan.first_lane), Not(Contains(11)));
      if (plan.mode == StepMode::kGroups) {
        EXPECT_THAT(ids(plan.second_lane), Contains(11));
      }
    }
  }
  if (kind.rules.join == HostJoin::kByNeo) {
    EXPECT_THAT(let_in, ElementsAre(21, 42)) << "20 plans hold it, and it is counted anew";
  } else if (kind.rules.join == HostJoin::kByApex) {
    EXPECT_THAT(let_in, IsEmpty()) << "overlap takes it at once";
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, LaneMoves,
                         ::testing::Values(kNeoKind, kNeoPlusKind, kApexKind, kApexPlusKind),
                         [](const auto& param_info) { return param_info.param.name; });

// A stage takes 100 us however few rows it has, so that a second lane doubles it.
const latency::CorrectedModel& flat_model() {
  static const latency::CorrectedModel made = [] {
    latency::ModularCosts costs;
    costs.layers = 10;
    costs.dense = latency::Ladder::through({{1, 1e6}, {100, 1.001e6}}).value();
    costs.decode.per_context = 100;  // 80 us a layer for eight residents of 1,000 tokens
    return latency::CorrectedModel(
        std::make_unique<latency::ModularModel>(latency::ModularModel::create(costs).value()));
  }();
  return made;
}

// If a second dense stage costs much and the host's part hides behind the residents' attention,
// tokens stay in the first lane. If the host's part does not hide, the residents would be held up.
TEST(LaneMovesPriced, RepairedRulesCompareBothWays) {
  for (const Kind& kind : {kNeoPlusKind, kApexPlusKind}) {
    SCOPED_TRACE(kind.name);
    std::vector<SequenceView> tokens;
    for (int64_t id = 11; id < 26; ++id) {
      tokens.push_back(in_flight(id, 60, 9));
    }
    const StepPlan hidden = Planner(kind, 0.1, flat_model()).plan(with_residents(tokens));
    ASSERT_EQ(hidden.mode, StepMode::kLanes);
    EXPECT_THAT(hidden.lane_moves, IsEmpty());
    // 15 * 60 * 180 ns = 162 us: beside the residents a layer takes 262 us instead of 180, and all
    // ten do; in the second lane the last one takes 280.
    const StepPlan held_up = Planner(kind, 180, flat_model()).plan(with_residents(tokens));
    ASSERT_EQ(held_up.mode, StepMode::kLanes);
    EXPECT_EQ(held_up.lane_moves.size(), 15U);
  }
}

// A lane that begins at stage i costs layers - i dense stages: tokens that are nearly through pay
// for it, and tokens that have hardly begun do not.
TEST(LaneMovesPriced, ALaneCostsTheStagesThatAreLeft) {
  for (const auto& both : {std::pair(kNeoKind, 3), std::pair(kNeoPlusKind, 4)}) {
    const auto& kind = both.first;
    const int64_t tokens = both.second;
    SCOPED_TRACE(kind.name);
    const auto mode_at = [&](int32_t stage) {
      std::vector<SequenceView> offloaded;
      for (int64_t id = 11; id < 11 + tokens; ++id) {
        offloaded.push_back(in_flight(id, 60, stage, 1));
      }
      return Planner(kind, 1, flat_model()).plan(with_residents(offloaded)).mode;
    };
    EXPECT_EQ(mode_at(9), StepMode::kLanes);
    EXPECT_EQ(mode_at(1), StepMode::kGroups);
  }
}

// Residents of this context in all, and four sequences on the host that find no blocks to return.
Scene residents_of(int32_t context) {
  std::vector<SequenceView> tokens;
  for (int64_t id = 11; id < 15; ++id) {
    tokens.push_back(parked(id, 60));
    tokens.back().transfer_blocks = 400;
  }
  Scene scene = with_residents(std::move(tokens));
  for (SequenceView& resident : scene.running) {
    resident = decode(raw(resident.id), context / 8);
  }
  return scene;
}

// A layer has D = 100 us of dense stages and A = 10 ns for each token of the residents' context.
// A step with lanes takes (2 D + A) / (D + A) of the time and gives 12 tokens instead of 8
// (neo_plus), or of 8
// + 4 / 11 (apex_plus, against overlap). So they begin to pay at 10,000 or 12,000 tokens, and near
// that the mode does not follow a context that goes up and down by 3 %.
TEST(ModeChanges, AreNotMadeForGainsWithinTheMargin) {
  for (const auto& both : {std::pair(kNeoPlusKind, 10'000), std::pair(kApexPlusKind, 12'000)}) {
    const auto& kind = both.first;
    const int32_t crossing = both.second;
    SCOPED_TRACE(kind.name);
    Planner planner(kind, 1, flat_model());
    StepMode last = StepMode::kGroups;
    const auto changes_near_crossing = [&](int64_t first_step) {
      int changes = 0;
      for (int64_t step = first_step; step < first_step + 6; ++step) {
        const int32_t context = crossing + (step % 2 == 0 ? 300 : -300);
        const StepPlan plan = planner.plan(residents_of(context), step);
        changes += std::exchange(last, plan.mode) != plan.mode ? 1 : 0;
      }
      return changes;
    };
    EXPECT_EQ(changes_near_crossing(1), 0);
    EXPECT_EQ(last, StepMode::kGroups);
    last = planner.plan(residents_of(2 * crossing), 7).mode;
    ASSERT_EQ(last, StepMode::kLanes);
    EXPECT_EQ(changes_near_crossing(8), 0);
    EXPECT_EQ(last, StepMode::kLanes);
    EXPECT_EQ(planner.plan(residents_of(crossing / 2), 14).mode, StepMode::kGroups);
  }
}

}  // namespace
}  // namespace tandem
