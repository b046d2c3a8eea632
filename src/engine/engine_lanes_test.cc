// Plans that move tokens under way on the host from lane to lane, and the counts of such plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "support/two_tier_world.h"

namespace tandem {
namespace {

using namespace std::chrono_literals;
using testing::Dice;
using testing::expect_drained;
using testing::make_request;
using testing::prompt_of;
using testing::two_tiers;
using testing::VirtualWorld;
using testing::WorldOptions;

// Adds something to the plans of another policy.
class AddingPolicy final : public StepPolicy {
 public:
  using Add = std::function<void(const SystemView&, StepPlan&)>;
  AddingPolicy(StepPolicy& policy, Add add) : policy_(policy), add_(std::move(add)) {}
  [[nodiscard]] std::string_view name() const override { return policy_.name(); }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override {
    return policy_.make_queue_order();
  }
  StepPlan plan(const SystemView& view) override {
    StepPlan plan = policy_.plan(view);
    add_(view, plan);
    return plan;
  }

 private:
  StepPolicy& policy_;
  const Add add_;
};

struct Counts {
  int64_t let_in = 0;
  int64_t lane_moves = 0;
  int64_t mode_changes = 0;
};

Counts run_with(const AddingPolicy::Add& add) {
  Dice dice;
  dice.offload = 60;
  dice.onload = dice.drop = dice.preempt = 0;
  WorldOptions options = two_tiers(dice);
  options.watch_policy = [&](StepPolicy& policy) {
    return std::make_unique<AddingPolicy>(policy, add);
  };
  VirtualWorld world(options);
  for (int64_t id = 1; id <= 4; ++id) {
    world.arrive(0ms, id, make_request(prompt_of(6, static_cast<TokenId>(id * 50)), 20));
  }
  world.run_until_idle();
  for (int64_t id = 1; id <= 4; ++id) {
    EXPECT_EQ(world.outcome(id).tokens.size(), 20U) << id;
  }
  expect_drained(world);
  return {.let_in = world.let_in(),
          .lane_moves = world.lane_moves(),
          .mode_changes = world.mode_changes()};
}

const SequenceView* find(const SystemView& view, SequenceState state) {
  for (const auto sequences : {view.offloaded, view.running}) {
    const auto found = std::ranges::find(sequences, state, &SequenceView::state);
    if (found != sequences.end()) {
      return &*found;
    }
  }
  return nullptr;
}

AddingPolicy::Add moves(SequenceState state, int32_t lane) {
  return [=](const SystemView& view, StepPlan& plan) {
    if (const SequenceView* sequence = find(view, state)) {
      plan.lane_moves.push_back({.sequence = sequence->id, .lane = lane});
    }
  };
}

TEST(EngineLanes, ATokenUnderWayMayMoveToEitherLane) {
  EXPECT_GT(run_with(moves(SequenceState::kParkedInFlight, 1)).lane_moves, 5);
  EXPECT_GT(run_with(moves(SequenceState::kParkedInFlight, 0)).lane_moves, 5);
}

TEST(EngineLanes, ChangesOfModeAndSequencesLetInAreCounted) {
  const Counts none = run_with([](const SystemView&, StepPlan&) {});
  EXPECT_EQ(none.mode_changes + none.let_in + none.lane_moves, 0);
  int64_t plans_with_host = 0;
  const Counts some = run_with([&](const SystemView& view, StepPlan& plan) {
    if (const SequenceView* waits = find(view, SequenceState::kParkedWaiting)) {
      plan.let_in.push_back(waits->id);
      ++plans_with_host;
    }
    plan.mode = view.step % 2 == 0 ? StepMode::kLanes : StepMode::kGroups;
  });
  EXPECT_EQ(some.let_in, plans_with_host);
  EXPECT_GT(some.mode_changes, 20) << "in every step";
}

TEST(EngineLanesDeathTest, NoOtherSequenceMayMove) {
  EXPECT_DEATH(run_with(moves(SequenceState::kDecoding, 1)), "no token of it is under way");
  EXPECT_DEATH(run_with([](const SystemView&, StepPlan& plan) {
                 plan.lane_moves.push_back({.sequence = SequenceId{999}, .lane = 1});
               }),
               "sequence 999 into lane 1, but no token of it is under way");
  EXPECT_DEATH(run_with(moves(SequenceState::kParkedInFlight, 2)), "into lane 2");
}

// A sequence that the same plan drops has no token that could continue.
TEST(EngineLanesDeathTest, NorOneThatIsDropped) {
  EXPECT_DEATH(run_with([](const SystemView& view, StepPlan& plan) {
                 if (const SequenceView* dropped = find(view, SequenceState::kParkedInFlight)) {
                   plan.preempt.push_back(dropped->id);
                   plan.lane_moves.push_back({.sequence = dropped->id, .lane = 1});
                 }
               }),
               "no token of it is under way");
}

}  // namespace
}  // namespace tandem
