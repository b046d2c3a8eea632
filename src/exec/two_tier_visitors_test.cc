// Which visitors a binder is shown: the visitors of a lane, and the hops on their way to a stage.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "support/guests.h"
#include "support/random_model.h"

namespace tandem {
namespace {

using reference::kClock;
using reference::make_model;
using reference::make_rig;
using reference::next_slice;
using reference::next_token;
using reference::offload;
using reference::prefill;
using reference::prompt_of;
using reference::Rig;
using reference::RigOptions;
using reference::run;
using reference::Sequence;
using reference::SequenceMaker;
using reference::two_tiers;

// Every visitor that is ready joins; keeps how many were on their way to each stage of the last
// step.
class ComingBinder final : public Binder {
 public:
  void bind(const BindView& view, BindDecision& decision) override {
    decision.visitors.assign(view.ready.begin(), view.ready.end());
    if (view.first_stage == 0) {
      coming.clear();
    }
    coming.insert(coming.end(), view.coming.begin(), view.coming.end());
  }
  std::vector<int32_t> coming;
};

// A token's hop begins in a group. The next group is bound before it can be back, so no stage could
// wait for it.
TEST(TwoTierVisitors, AHopThatTheStepItselfBeganIsNotOnItsWay) {
  const reference::Model model = make_model(reference::small_config(), ElementType::kBF16, 7);
  ComingBinder binder;
  RigOptions options = two_tiers(binder);
  options.host.group_stages = 1;
  const Rig rig = make_rig(model, options);
  SequenceMaker maker(rig.executor->limits());
  Sequence resident = maker.make(prompt_of(12, 3), 60);
  prefill(*rig.executor, resident, 64);
  const SampleSpec sample = next_token(resident).sample;
  StepInput input;
  input.slices.push_back(next_slice(resident, sample));
  std::vector<Sequence> guests;
  for (int32_t i = 0; i < 2; ++i) {
    guests.push_back(maker.make(prompt_of(30 + i, 5), 60));
    prefill(*rig.executor, guests.back(), 64);
    offload(*rig.executor, guests.back(), i + 1);
  }
  rig.executor->freeze_host();  // no hop comes back
  std::vector<int32_t> expected(static_cast<size_t>(reference::small_config().layers) + 1, 0);
  for (const Sequence& guest : guests) {
    input.entering = {next_token(guest)};
    run(*rig.executor, input);
    EXPECT_EQ(binder.coming, expected) << "hops of earlier steps only";
    ++expected[1];
  }
  rig.executor->thaw_host();
}

// Waits for visitors on their way, as binders of lanes do.
class LanesBinder final : public Binder {
 public:
  void bind(const BindView& view, BindDecision& decision) override {
    const bool has_lanes = view.mode == StepMode::kLanes;
    if (has_lanes && view.lane == 0) {
      beside_residents += view.ready.front() + view.coming.front();
    }
    decision.wait = has_lanes && view.coming.front() > 0;
    decision.visitors.assign(view.ready.begin(), view.ready.end());
  }
  int64_t beside_residents = 0;  // visitors of the first lane, over all binds
};

// A token that has begun in steps without lanes, in the first lane, moves into the second one: no
// stage of the residents has a visitor to wait for.
TEST(TwoTierVisitors, ATokenThatChangesItsLaneIsNotBesideTheResidents) {
  const reference::Model model = make_model(reference::small_config(), ElementType::kBF16, 7);
  std::vector<TokenId> tokens;
  for (const bool moves : {false, true}) {
    LanesBinder binder;
    const Rig rig = make_rig(model, two_tiers(binder));
    SequenceMaker maker(rig.executor->limits());
    Sequence resident = maker.make(prompt_of(12, 3), 60);
    prefill(*rig.executor, resident, 64);
    Sequence guest = maker.make(prompt_of(30, 5), 60);
    prefill(*rig.executor, guest, 64);
    offload(*rig.executor, guest, 1);
    const SampleSpec sample = next_token(resident).sample;
    StepInput input;
    input.slices.push_back(next_slice(resident, sample));
    input.entering.push_back(next_token(guest));
    ASSERT_TRUE(run(*rig.executor, input).visitors.empty());
    EXPECT_EQ(rig.executor->next_stage(guest.id), 1);
    input.entering.clear();
    input.mode = StepMode::kLanes;
    if (moves) {
      input.lane_moves = {{.sequence = guest.id, .lane = 1}};
    }
    const StepResult result = run(*rig.executor, input);
    ASSERT_EQ(result.visitors.size(), 1U);
    tokens.push_back(result.visitors.front().token);
    EXPECT_EQ(binder.beside_residents == 0, moves);
    EXPECT_EQ(result.second.stages, moves ? reference::small_config().layers - 1 : 0);
  }
  EXPECT_EQ(tokens[0], tokens[1]);
}

// Named although its token has been sampled, or never began: nothing is under way that could move.
TEST(TwoTierVisitors, AMoveOfATokenThatIsGoneIsIgnored) {
  const reference::Model model = make_model(reference::small_config(), ElementType::kBF16, 7);
  LanesBinder binder;
  const Rig rig = make_rig(model, two_tiers(binder));
  StepInput input;
  input.lane_moves = {{.sequence = SequenceId{77}, .lane = 1}};
  EXPECT_EQ(run(*rig.executor, input).visits, 0);
}

// One guest beside the resident, two in the second lane. Both lanes pass every stage, so the second
// lane is launched at each, and as long as the host attends for all three nothing is queued.
TEST(TwoTierVisitors, AStepWithLanesCountsWhatTheSecondOneAdds) {
  const reference::Model model = make_model(reference::small_config(), ElementType::kBF16, 7);
  LanesBinder binder;
  const Rig rig = make_rig(model, two_tiers(binder));
  SequenceMaker maker(rig.executor->limits());
  Sequence resident = maker.make(prompt_of(12, 3), 60);
  prefill(*rig.executor, resident, 64);
  std::vector<Sequence> guests;
  for (int32_t i = 0; i < 3; ++i) {
    guests.push_back(maker.make(prompt_of(30 + i, 5), 60));
    prefill(*rig.executor, guests.back(), 64);
    offload(*rig.executor, guests.back(), i + 1);
  }
  const SampleSpec sample = next_token(resident).sample;
  StepInput input;
  input.mode = StepMode::kLanes;
  input.slices.push_back(next_slice(resident, sample));
  for (const Sequence& guest : guests) {
    input.entering.push_back(next_token(guest));
    input.entering.back().lane = &guest == guests.data() ? 0 : 1;
  }
  const Nanos began = kClock.now();
  StepResult result = run(*rig.executor, input);
  const Nanos took = kClock.now() - began;
  const int32_t layers = reference::small_config().layers;
  EXPECT_EQ(result.visitors.size(), 3U);
  EXPECT_EQ(result.visits, 3 * (layers + 1));
  EXPECT_EQ(result.second.visits, 2 * layers);
  EXPECT_EQ(result.second.stages, layers);
  EXPECT_EQ(result.second.logits, 2);
  EXPECT_GT(result.held, Nanos{0}) << "the host's part of so small a model is the longer one";
  EXPECT_LT(result.held, took);
  // A step without lanes counts none, though the result's memory is the same.
  StepResult again = std::move(result);
  StepInput without;
  without.step = 2;
  without.slices = input.slices;
  rig.executor->launch(without);
  while (!rig.executor->poll(again)) {
    std::this_thread::yield();
  }
  EXPECT_EQ(again.second.visits, 0);
  EXPECT_EQ(again.held, Nanos{0});
}

}  // namespace
}  // namespace tandem
