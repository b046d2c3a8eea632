// Steps over two tiers, driven one by one: what the accelerator does must not depend on what the
// host does, and what a group has consumed is free whenever its end is seen.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "support/forwarding_device.h"
#include "support/guests.h"
#include "support/random_model.h"

namespace tandem {
namespace {

using reference::AllBinder;
using reference::kClock;
using reference::make_model;
using reference::make_rig;
using reference::next_token;
using reference::offload;
using reference::prefill;
using reference::prompt_of;
using reference::Rig;
using reference::RigOptions;
using reference::run;
using reference::Sequence;
using reference::SequenceMaker;
using reference::Step;
using reference::two_tiers;

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

}  // namespace
}  // namespace tandem
