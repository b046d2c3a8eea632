// Steps over two tiers, driven one by one: what the accelerator does must not depend on what the
// host does, and what a group has consumed is free whenever its end is seen.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "support/forwarding_device.h"
#include "support/random_model.h"
#include "support/step_driver.h"

namespace tandem {
namespace {

using reference::AllBinder;
using reference::make_model;
using reference::make_rig;
using reference::prefill;
using reference::Rig;
using reference::RigOptions;
using reference::Sequence;
using reference::SequenceMaker;
using reference::Step;

const SteadyClock kClock;

RigOptions two_tiers(Binder& binder) {
  RigOptions options{
      .type = ElementType::kBF16, .two_tier_memory_bytes = int64_t{64} << 20, .host_blocks = 64};
  options.host = {
      .sequences = 4, .threads = 1, .group_stages = 100, .clock = &kClock, .binder = &binder};
  return options;
}

std::vector<TokenId> prompt_of(int32_t tokens, int32_t first) {
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < tokens; ++i) {
    prompt.push_back((first + 7 * i) % 75);
  }
  return prompt;
}

StepResult run(ForwardExecutor& executor, const StepInput& input) {
  executor.launch(input);
  StepResult result;
  while (!executor.poll(result)) {
    std::this_thread::yield();
  }
  return result;
}

// The host's blocks have the ids of the accelerator's.
void offload(ForwardExecutor& executor, const Sequence& guest, int64_t id) {
  StepInput input;
  TierTransfer transfer{.id = id, .kind = TransferKind::kOffload, .blocks = {}};
  for (const BlockId block : guest.blocks) {
    transfer.blocks.push_back({block, block});
  }
  input.transfers.push_back(transfer);
  run(executor, input);
  while (executor.take_tier_events().transfers_done.empty()) {
    std::this_thread::yield();
  }
}

OffloadedToken next_token(const Sequence& guest) {
  return {.sequence = guest.id,
          .token = guest.tokens.back(),
          .position = guest.computed_tokens,
          .host_table = guest.blocks,
          .sample = {.sequence = guest.id,
                     .params = &guest.params,
                     .seed = guest.seed,
                     .position = static_cast<int64_t>(guest.tokens.size())}};
}

TEST(TwoTierParts, CanBeTimedAloneAndLeaveNothingUnderWay) {
  const reference::Model model = make_model(reference::small_config(), ElementType::kBF16, 3);
  AllBinder binder;
  RigOptions options = two_tiers(binder);
  options.accelerator_options = "link-gbps=0.5";
  const Rig rig = make_rig(model, options);
  const HostProbeLimits limits = rig.executor->probe_limits();
  EXPECT_GE(limits.rows, 4);
  EXPECT_EQ(limits.context, 512);
  EXPECT_EQ(limits.tokens, 64 * 32);
  for (const auto& [rows, context] :
       {std::pair(1, 1), std::pair(1, limits.context), std::pair(limits.rows, 33)}) {
    const Result<Nanos> took = rig.executor->time_host_attention(rows, context);
    ASSERT_TRUE(took.ok()) << took.error().message;
    EXPECT_GT(*took, Nanos{0});
  }
  for (const TransferKind way : {TransferKind::kOffload, TransferKind::kOnload}) {
    EXPECT_GT(rig.executor->time_link(way, 4), Nanos{0});
    const double bytes = static_cast<double>(limits.copy_bytes);
    EXPECT_GT(to_seconds(rig.executor->time_link(way, limits.copy_bytes)), bytes / 0.55e9);
  }
  EXPECT_EQ(rig.executor->tier_counts().hops_in_flight, 0);
  // It goes on as ever.
  SequenceMaker maker(rig.executor->limits());
  Sequence guest = maker.make(prompt_of(40, 1), 60);
  prefill(*rig.executor, guest, 64);
  offload(*rig.executor, guest, 1);
  StepInput input;
  input.entering.push_back(next_token(guest));
  std::vector<SampledToken> visitors;
  while (visitors.empty()) {
    visitors = run(*rig.executor, input).visitors;
    input.entering.clear();
  }
  EXPECT_EQ(visitors.front().sequence, guest.id);
}

// ---------------------------------------------------------------- a host that stands still

struct Seen {
  std::vector<Nanos> times;  // of the compute stream, by step, as the cost model charges them
  std::vector<int64_t> ops;
  std::vector<TokenId> tokens;
};

enum class Guests : uint8_t { kNone, kFrozen };

device::StreamStatistics compute_streams(const device::Device& device) {
  device::StreamStatistics sum;
  for (const device::StreamStatistics& one : device.statistics().streams) {
    if (one.kind == device::StreamKind::kCompute) {
      sum.ops += one.ops;
      sum.busy += one.busy;
    }
  }
  return sum;
}

// Decodes of residents beside guests whose workers never answer, or without any.
Seen resident_steps(const reference::Model& model, Guests guests) {
  AllBinder binder;
  RigOptions options = two_tiers(binder);
  options.accelerator_options = "pace=h200";
  options.host.hop_patience = std::chrono::hours(1);
  options.host.faults.hangs = 1000;
  const Rig rig = make_rig(model, options);
  const device::Device& device = *rig.device;
  SequenceMaker maker(rig.executor->limits());
  Sequence resident = maker.make(prompt_of(40, 3), 100);
  std::vector<Sequence> away;
  prefill(*rig.executor, resident, 64);
  for (int32_t i = 0; guests == Guests::kFrozen && i < 3; ++i) {
    away.push_back(maker.make(prompt_of(20 + 9 * i, i), 60));
    prefill(*rig.executor, away.back(), 64);
    offload(*rig.executor, away.back(), i + 1);
  }
  if (guests == Guests::kFrozen) {
    StepInput input;
    for (const Sequence& guest : away) {
      input.entering.push_back(next_token(guest));
    }
    run(*rig.executor, input);  // their rows visit stage 0 and leave for the host
    EXPECT_EQ(rig.executor->tier_counts().hops_in_flight, 3);
  }
  Seen seen;
  for (int i = 0; i < 12; ++i) {
    const device::StreamStatistics before = compute_streams(device);
    Step step;
    step.add(resident, 1, 1);
    const StepResult result = step.run(*rig.executor);
    resident.tokens.push_back(result.samples.front().token);
    const device::StreamStatistics after = compute_streams(device);
    seen.times.push_back(after.busy - before.busy);
    seen.ops.push_back(after.ops - before.ops);
    seen.tokens.push_back(result.samples.front().token);
    EXPECT_TRUE(result.visitors.empty());
  }
  EXPECT_EQ(rig.executor->tier_counts().hops_in_flight, guests == Guests::kFrozen ? 3 : 0);
  return seen;
}

TEST(TwoTierSteps, TakeExactlyAsLongWithTheHostFrozenAsWithoutGuests) {
  const reference::Model model = make_model(reference::small_config(), ElementType::kBF16, 7);
  const Seen frozen = resident_steps(model, Guests::kFrozen);
  const Seen alone = resident_steps(model, Guests::kNone);
  EXPECT_GT(alone.times.front(), Nanos{0});
  EXPECT_EQ(frozen.times, alone.times);
  EXPECT_EQ(frozen.ops, alone.ops);
  EXPECT_EQ(frozen.tokens, alone.tokens);
}

// A copy may let a sequence go on, so a step that waits for a hop does not keep it waiting.
TEST(TwoTierSteps, AStepThatWaitsForAHopEndsWhenACopyDoes) {
  const reference::Model model = make_model(reference::small_config(), ElementType::kBF16, 7);
  AllBinder binder;
  RigOptions options = two_tiers(binder);
  options.host.hop_patience = std::chrono::hours(1);
  options.host.faults.hangs = 1000;
  const Rig rig = make_rig(model, options);
  SequenceMaker maker(rig.executor->limits());
  Sequence guest = maker.make(prompt_of(30, 5), 60);
  prefill(*rig.executor, guest, 64);
  offload(*rig.executor, guest, 1);
  Sequence other = maker.make(prompt_of(50, 1), 60);
  prefill(*rig.executor, other, 64);

  StepInput first;
  first.entering.push_back(next_token(guest));
  const StepResult visited = run(*rig.executor, first);  // its row visits stage 0
  EXPECT_EQ(visited.visits, 1);
  EXPECT_EQ(visited.ready, 1);
  StepInput copying;
  copying.transfers.push_back({.id = 2, .kind = TransferKind::kOffload, .blocks = {}});
  for (const BlockId block : other.blocks) {
    copying.transfers.back().blocks.push_back({block, block});
  }
  rig.executor->launch(copying);
  StepResult result;
  const Nanos end = kClock.now() + std::chrono::seconds(20);
  bool has_ended = false;
  while (!has_ended && kClock.now() < end) {
    has_ended = rig.executor->poll(result);
    std::this_thread::yield();
  }
  ASSERT_TRUE(has_ended);
  EXPECT_EQ(result.visits, 0);
  EXPECT_TRUE(result.visitors.empty());
  EXPECT_EQ(rig.executor->take_tier_events().transfers_done, std::vector<int64_t>{2});
  // Without news the next one waits.
  rig.executor->launch({});
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(rig.executor->poll(result));
  }
  rig.executor->wait_no_longer();
  while (!rig.executor->poll(result)) {
    std::this_thread::yield();
  }
}

// ---------------------------------------------------------------- groups

// Knows how many ops of the compute stream were launched, and how many were waited for.
class LaunchCounter final : public reference::ForwardingDevice {
 public:
  explicit LaunchCounter(std::unique_ptr<device::Device> real)
      : ForwardingDevice(std::move(real)) {}
  [[nodiscard]] int64_t launched() const { return launched_; }
  [[nodiscard]] int64_t waited_for() const { return waited_for_; }

  device::StreamId create_stream(device::StreamKind kind) override {
    const device::StreamId stream = ForwardingDevice::create_stream(kind);
    if (kind == device::StreamKind::kCompute) {
      compute_ = stream;
    }
    return stream;
  }
  void launch(device::StreamId stream, const device::Op& op) override {
    launched_ += stream == compute_ ? 1 : 0;
    ForwardingDevice::launch(stream, op);
  }
  device::EventId record(device::StreamId stream) override {
    const device::EventId event = ForwardingDevice::record(stream);
    if (stream == compute_) {
      newest_ = event;
      before_newest_ = launched_;
    }
    return event;
  }
  void synchronize(device::EventId event) override {
    ForwardingDevice::synchronize(event);
    if (event == newest_) {
      waited_for_ = before_newest_;
    }
  }

 private:
  device::StreamId compute_{-1};
  device::EventId newest_{};
  int64_t before_newest_ = 0;
  int64_t launched_ = 0;
  int64_t waited_for_ = 0;
};

TEST(TwoTierSteps, AnExecutorThatGoesWaitsForTheGroupsOfItsStep) {
  const reference::Model model = make_model(reference::small_config(), ElementType::kBF16, 7);
  AllBinder binder;
  LaunchCounter* device = nullptr;
  RigOptions options = two_tiers(binder);
  options.host.group_stages = 1;
  options.wrap = [&device](std::unique_ptr<device::Device> real) {
    auto counting = std::make_unique<LaunchCounter>(std::move(real));
    device = counting.get();
    return counting;
  };
  Rig rig = make_rig(model, options);
  SequenceMaker maker(rig.executor->limits());
  Sequence resident = maker.make(prompt_of(30, 5), 60);
  StepInput input;
  input.slices.push_back({.sequence = resident.id,
                          .tokens = resident.tokens,
                          .first_position = 0,
                          .block_table = resident.blocks});
  const int64_t before = device->launched();
  rig.executor->launch(input);
  EXPECT_GT(device->launched(), before);
  rig.executor.reset();
  EXPECT_EQ(device->waited_for(), device->launched());
}

// Keeps from the executor that the last group of a step has completed: of the compute stream's
// events, all but the newest are complete when they are, the one before it never while held.
class HoldingDevice final : public reference::ForwardingDevice {
 public:
  explicit HoldingDevice(std::unique_ptr<device::Device> real)
      : ForwardingDevice(std::move(real)) {}
  void hold(bool held) { held_ = held; }

  device::StreamId create_stream(device::StreamKind kind) override {
    const device::StreamId stream = ForwardingDevice::create_stream(kind);
    if (kind == device::StreamKind::kCompute) {
      compute_ = stream;
    }
    return stream;
  }
  device::EventId record(device::StreamId stream) override {
    const device::EventId event = ForwardingDevice::record(stream);
    if (stream == compute_) {
      before_ = newest_;
      newest_ = event;
    }
    return event;
  }
  [[nodiscard]] bool query(device::EventId event) const override {
    return !(held_ && event == before_) && ForwardingDevice::query(event);
  }

 private:
  device::StreamId compute_{-1};
  device::EventId newest_{};
  device::EventId before_{};
  bool held_ = false;
};

TEST(TwoTierSteps, AGroupThatEndsAfterItsStepWasSeenToEndIsTakenWithTheTierEvents) {
  const reference::Model model = make_model(reference::small_config(), ElementType::kBF16, 7);
  AllBinder binder;
  HoldingDevice* device = nullptr;
  RigOptions options = two_tiers(binder);
  options.wrap = [&device](std::unique_ptr<device::Device> real) {
    auto holding = std::make_unique<HoldingDevice>(std::move(real));
    device = holding.get();
    return holding;
  };
  const Rig rig = make_rig(model, options);
  SequenceMaker maker(rig.executor->limits());
  Sequence guest = maker.make(prompt_of(30, 5), 60);
  prefill(*rig.executor, guest, 64);
  offload(*rig.executor, guest, 1);
  device->hold(true);
  StepInput input;
  input.entering.push_back(next_token(guest));
  size_t samples = 0;
  for (int step = 0; step < 100 && samples == 0; ++step) {
    samples += run(*rig.executor, input).visitors.size();
    input.entering.clear();
  }
  ASSERT_EQ(samples, 1U);
  // What the last group has consumed is still its own, as far as anybody knows.
  rig.executor->leave(guest.id);
  EXPECT_TRUE(rig.executor->take_tier_events().left.empty());
  device->hold(false);
  EXPECT_EQ(rig.executor->take_tier_events().left, std::vector{guest.id});
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
TEST(TwoTierSteps, ATokenThatChangesItsLaneIsNotBesideTheResidents) {
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
    input.slices.push_back({.sequence = resident.id,
                            .tokens = std::span(resident.tokens).last(1),
                            .first_position = resident.computed_tokens,
                            .block_table = resident.blocks,
                            .samples = std::span(&sample, 1)});
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
TEST(TwoTierSteps, AMoveOfATokenThatIsGoneIsIgnored) {
  const reference::Model model = make_model(reference::small_config(), ElementType::kBF16, 7);
  LanesBinder binder;
  const Rig rig = make_rig(model, two_tiers(binder));
  StepInput input;
  input.lane_moves = {{.sequence = SequenceId{77}, .lane = 1}};
  EXPECT_EQ(run(*rig.executor, input).visits, 0);
}

// One guest beside the resident, two in the second lane. Both lanes pass every stage, so the second
// lane is launched at each, and as long as the host attends for all three nothing is queued.
TEST(TwoTierSteps, AStepWithLanesCountsWhatTheSecondOneAdds) {
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
  input.slices.push_back({.sequence = resident.id,
                          .tokens = std::span(resident.tokens).last(1),
                          .first_position = resident.computed_tokens,
                          .block_table = resident.blocks,
                          .samples = std::span(&sample, 1)});
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
