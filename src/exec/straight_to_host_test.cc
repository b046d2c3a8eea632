// Prompts that go straight to the host, over the staging layers: they compute the same bits as on
// the plain path, in any company; a stage is not launched before its staging layer is free; and a
// device that fails in between ends the step.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "exec/forward/stages.h"
#include "support/forwarding_device.h"
#include "support/random_model.h"
#include "support/step_driver.h"

namespace tandem {
namespace {

using reference::AllBinder;
using reference::decode;
using reference::make_model;
using reference::make_rig;
using reference::prefill;
using reference::Rig;
using reference::RigOptions;
using reference::Sequence;
using reference::SequenceMaker;

const SteadyClock kClock;
constexpr int32_t kTokens = 6;  // that each sequence decodes

// A random number of visitors joins, and at least one visitor if there are no residents.
class ChanceBinder final : public Binder {
 public:
  explicit ChanceBinder(uint32_t seed) : random_(seed) {}
  void bind(const BindView& view, BindDecision& decision) override {
    decision.wait = view.mode == StepMode::kLanes && view.coming.front() > 0 && random_() % 2 == 0;
    decision.visitors.assign(view.ready.size(), 0);
    for (size_t i = 0; i < view.ready.size(); ++i) {
      std::uniform_int_distribution<int32_t> some(0, view.ready[i]);
      decision.visitors[i] = some(random_);
    }
    if (view.resident_rows == 0) {
      decision.visitors.front() = std::max(decision.visitors.front(), 1);
    }
  }

 private:
  std::mt19937 random_;
};

std::vector<TokenId> prompt_of(int32_t count, uint32_t seed, int32_t vocabulary) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<TokenId> token(0, vocabulary - 1);
  std::vector<TokenId> prompt(static_cast<size_t>(count));
  std::ranges::generate(prompt, [&] { return token(random); });
  return prompt;
}

SampleSpec sample_of(const Sequence& sequence) {
  const std::span<const TokenId> all(sequence.tokens);
  const auto prompt = static_cast<size_t>(sequence.prompt_tokens);
  return {.sequence = sequence.id,
          .params = &sequence.params,
          .seed = sequence.seed,
          .position = static_cast<int64_t>(sequence.tokens.size()),
          .prompt = all.first(prompt),
          .output = all.subspan(prompt)};
}

StepSlice slice_of(const Sequence& sequence, const SampleSpec& sample) {
  return {
      .sequence = sequence.id,
      .tokens = std::span(sequence.tokens).subspan(static_cast<size_t>(sequence.computed_tokens)),
      .first_position = sequence.computed_tokens,
      .block_table = sequence.blocks,
      .samples = std::span(&sample, 1)};
}

// Sequences that stay on the accelerator, and sequences whose prompts go straight to the host at
// random times, several in a step perhaps.
class Schedule {
 public:
  Schedule(ForwardExecutor& executor, int32_t vocabulary, uint32_t seed)
      : executor_(executor), vocabulary_(vocabulary), random_(seed) {
    for (int32_t i = 0; i < executor.limits().host_blocks; ++i) {
      host_blocks_.push_back(static_cast<BlockId>(i));
    }
    std::ranges::shuffle(host_blocks_, random_);
  }

  void add_resident(Sequence sequence) {
    sequences_.push_back({.sequence = std::move(sequence), .place = Place::kResident});
  }
  void add_straight(Sequence sequence) {
    Guest& guest = sequences_.emplace_back();
    guest.sequence = std::move(sequence);
    for (size_t i = 0; i < guest.sequence.blocks.size(); ++i) {
      guest.host_table.push_back(host_blocks_.back());
      host_blocks_.pop_back();
    }
  }

  void run() {
    for (int step = 1; std::ranges::any_of(sequences_, wants_tokens); ++step) {
      ASSERT_LT(step, 5000) << "the schedule does not end";
      one_step(step);
    }
  }

  [[nodiscard]] const std::vector<float>& logits(size_t index) const {
    return sequences_[index].logits;
  }
  [[nodiscard]] int64_t most_at_once() const { return most_at_once_; }

 private:
  enum class Place : uint8_t { kWaiting, kResident, kHost, kUnderWay };
  struct Guest {
    Sequence sequence;
    Place place = Place::kWaiting;
    std::vector<BlockId> host_table;
    std::vector<float> logits;  // of the rows behind the prompt's
  };

  static bool wants_tokens(const Guest& guest) {
    return std::ssize(guest.sequence.tokens) < guest.sequence.prompt_tokens + 1 + kTokens;
  }
  bool dice(uint32_t of) { return random_() % of == 0; }

  void add_straight_slices(StepInput& input) {
    int64_t rows = 0;
    int64_t at_once = 0;
    for (Guest& guest : sequences_) {
      rows += guest.place == Place::kWaiting ? guest.sequence.prompt_tokens : 0;
      if (guest.place != Place::kWaiting || rows > executor_.limits().max_batched_tokens / 2 ||
          !dice(3)) {
        continue;
      }
      const int32_t block_tokens = executor_.limits().block_tokens;
      const auto blocks =
          static_cast<size_t>((guest.sequence.prompt_tokens + block_tokens - 1) / block_tokens);
      StepSlice& slice = input.slices.emplace_back(
          slice_of(guest.sequence, samples_.emplace_back(sample_of(guest.sequence))));
      slice.block_table = std::span(guest.host_table).first(blocks);
      slice.tier = Tier::kHost;
      ++at_once;
    }
    most_at_once_ = std::max(most_at_once_, at_once);
  }

  void one_step(int step) {
    samples_.clear();
    StepInput input;
    input.step = step;
    input.mode = dice(2) ? StepMode::kLanes : StepMode::kGroups;
    for (Guest& guest : sequences_) {
      if (guest.place == Place::kResident && wants_tokens(guest) && dice(2)) {
        input.slices.push_back(
            slice_of(guest.sequence, samples_.emplace_back(sample_of(guest.sequence))));
      } else if (guest.place == Place::kHost && wants_tokens(guest)) {
        guest.place = Place::kUnderWay;
        input.entering.push_back({.sequence = guest.sequence.id,
                                  .token = guest.sequence.tokens.back(),
                                  .position = guest.sequence.computed_tokens,
                                  .lane = dice(2) ? 1 : 0,
                                  .host_table = guest.host_table,
                                  .sample = sample_of(guest.sequence)});
      }
    }
    add_straight_slices(input);
    executor_.launch(input);
    StepResult result;
    while (!executor_.poll(result)) {
      std::this_thread::yield();
    }
    EXPECT_TRUE(executor_.take_tier_events().failed.empty());
    take(result.samples, 0);
    take(result.visitors, result.samples.size());
  }

  void take(const std::vector<SampledToken>& samples, size_t first_row) {
    for (size_t i = 0; i < samples.size(); ++i) {
      Guest& guest = sequences_[static_cast<size_t>(samples[i].sequence) - 1];
      Sequence& sequence = guest.sequence;
      sequence.computed_tokens = static_cast<int32_t>(sequence.tokens.size());
      sequence.tokens.push_back(samples[i].token);
      if (guest.place == Place::kWaiting) {
        guest.place = Place::kHost;
        continue;
      }
      guest.place = guest.place == Place::kUnderWay ? Place::kHost : guest.place;
      const auto begin =
          executor_.kept_logits().begin() + static_cast<int64_t>(first_row + i) * vocabulary_;
      guest.logits.insert(guest.logits.end(), begin, begin + vocabulary_);
    }
  }

  ForwardExecutor& executor_;
  const int32_t vocabulary_;
  std::mt19937 random_;
  std::deque<Guest> sequences_;
  std::vector<BlockId> host_blocks_;
  std::deque<SampleSpec> samples_;
  int64_t most_at_once_ = 0;
};

struct Case {
  model::ModelConfig config = reference::small_config();
  ElementType type = ElementType::kBF16;
  int32_t group_stages = 2;
};

std::vector<float> plain_logits(const reference::Model& model, const Case& given,
                                const std::vector<TokenId>& prompt, float penalty) {
  const Rig rig = make_rig(model, {.type = given.type, .threads = 1});
  SequenceMaker maker(rig.executor->limits());
  Sequence sequence = maker.make(prompt, static_cast<int32_t>(prompt.size()) + kTokens + 1);
  sequence.params.repetition_penalty = penalty;
  prefill(*rig.executor, sequence, 512);
  return decode(*rig.executor, sequence, kTokens);
}

RigOptions two_tiers(Binder& binder, const Case& given, int32_t staging_tokens) {
  RigOptions options{.type = given.type,
                     .max_batched_tokens = 1024,
                     .two_tier_memory_bytes = int64_t{256} << 20,
                     .host_blocks = 64};
  options.host = {.sequences = 8,
                  .threads = 1,
                  .staging_tokens = staging_tokens,
                  .group_stages = given.group_stages,
                  .clock = &kClock,
                  .binder = &binder};
  return options;
}

// Returns how many prompts went straight to the host in one step at most.
int64_t compare_with_plain(const Case& given, uint32_t seed) {
  const reference::Model model = make_model(given.config, given.type, 7);
  const std::vector<int32_t> lengths = {40, 7, 300, 33, 64, 1, 95};  // the first two stay
  ChanceBinder binder(seed);
  const Rig rig = make_rig(model, two_tiers(binder, given, 512));
  SequenceMaker maker(rig.executor->limits());
  Schedule schedule(*rig.executor, given.config.vocabulary, seed);
  std::vector<std::vector<float>> expected;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const float penalty = i % 2 == 0 ? 1.0F : 1.4F;
    const std::vector<TokenId> prompt =
        prompt_of(lengths[i], 50 + static_cast<uint32_t>(i), given.config.vocabulary);
    expected.push_back(plain_logits(model, given, prompt, penalty));
    Sequence sequence = maker.make(prompt, lengths[i] + kTokens + 1);
    sequence.params.repetition_penalty = penalty;
    if (i < 2) {
      prefill(*rig.executor, sequence, 64);
      schedule.add_resident(std::move(sequence));
    } else {
      schedule.add_straight(std::move(sequence));
    }
  }
  schedule.run();
  for (size_t i = 0; i < lengths.size(); ++i) {
    EXPECT_EQ(schedule.logits(i), expected[i]) << "sequence " << i;
  }
  EXPECT_GT(rig.executor->tier_counts().offloaded_bytes, 0);
  return schedule.most_at_once();
}

TEST(StraightToHost, LogitsAreThoseOfThePlainPathBitForBit) {
  int64_t most_at_once = 0;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    most_at_once = std::max(most_at_once, compare_with_plain({}, seed));
  }
  EXPECT_GE(most_at_once, 2);
}

TEST(StraightToHost, OfFloatsToo) { compare_with_plain({.type = ElementType::kF32}, 11); }

TEST(StraightToHost, OfOneLayerAndOfWindowsByLayer) {
  Case given;
  given.config.layers = 1;
  compare_with_plain(given, 12);
  given.config = reference::small_config();
  given.config.layers = 5;
  given.config.architecture = model::Architecture::kQwen3;
  given.config.qk_norm = true;
  given.config.windows = {20, 300, 0, 20, 64};
  given.group_stages = 100;
  compare_with_plain(given, 13);
}

// ---------------------------------------------------------------- launches wait

// Keeps from the executor that copies of staging layers have completed, and counts the layers that
// were written to them. Fails on request.
class HoldingDevice final : public reference::ForwardingDevice {
 public:
  explicit HoldingDevice(std::unique_ptr<device::Device> real)
      : ForwardingDevice(std::move(real)) {}
  void launch(device::StreamId stream, const device::Op& op) override {
    if (failure_.has_value()) {
      return;  // a device that failed runs nothing more, so no write meets a copy that still runs
    }
    if (const auto* write = std::get_if<device::RopeWriteOp>(&op)) {
      written_ += write->layout.layers == kStagingLayers ? 1 : 0;
    }
    if (const auto* move = std::get_if<device::KvMoveOp>(&op)) {
      if (move->layout.layers == kStagingLayers) {
        copying_ = stream;
      }
    }
    ForwardingDevice::launch(stream, op);
  }
  device::EventId record(device::StreamId stream) override {
    const device::EventId event = ForwardingDevice::record(stream);
    if (stream == copying_) {
      copies_.push_back(event);
    }
    return event;
  }
  [[nodiscard]] bool query(device::EventId event) const override {
    const auto copy = std::ranges::find(copies_, event) - copies_.begin();
    const bool is_held = copy < std::ssize(copies_) && copy >= released_;
    return failure_.has_value() || (!is_held && ForwardingDevice::query(event));
  }
  [[nodiscard]] const Error* failure() const override {
    return failure_.has_value() ? &*failure_ : nullptr;
  }

  void release(int64_t copies) { released_ = copies; }
  void fail() { failure_ = Error{ErrorCode::kInternal, "it broke", ""}; }
  [[nodiscard]] int32_t written() const { return written_; }

 private:
  device::StreamId copying_{-1};
  std::vector<device::EventId> copies_;
  int64_t released_ = 0;  // of these
  int32_t written_ = 0;
  std::optional<Error> failure_;
};

class StagedStep : public ::testing::TestWithParam<StepMode> {
 protected:
  static constexpr int32_t kLayers = 5;
  StagedStep() {
    Case given;
    given.config.layers = kLayers;
    const reference::Model model = make_model(given.config, given.type, 7);
    RigOptions options = two_tiers(binder_, given, 64);
    options.wrap = [this](std::unique_ptr<device::Device> real) {
      auto holding = std::make_unique<HoldingDevice>(std::move(real));
      device_ = holding.get();
      return holding;
    };
    rig_.emplace(make_rig(model, options));
    SequenceMaker maker(rig_->executor->limits());
    sequence_ = maker.make(prompt_of(40, 3, given.config.vocabulary), 64);
    sample_ = sample_of(sequence_);
    StepInput input;
    input.step = 1;
    input.mode = GetParam();
    input.slices = {slice_of(sequence_, sample_)};
    input.slices.front().block_table = std::span(sequence_.blocks).first(2);
    input.slices.front().tier = Tier::kHost;
    rig_->executor->launch(input);
  }

  // Polls until the step has launched `layers` layers, however slow the machine is.
  void await_written(int32_t layers) {
    const Nanos end = kClock.now() + std::chrono::seconds(20);
    while (device_->written() < layers && kClock.now() < end && !rig_->executor->poll(result_)) {
      std::this_thread::yield();
    }
  }
  // False: it has not ended after a while.
  bool poll() {
    const Nanos end = kClock.now() + std::chrono::milliseconds(20);
    while (kClock.now() < end) {
      if (rig_->executor->poll(result_)) {
        return true;
      }
      std::this_thread::yield();
    }
    return false;
  }

  AllBinder binder_;
  HoldingDevice* device_ = nullptr;
  std::optional<Rig> rig_;
  Sequence sequence_;
  SampleSpec sample_;
  StepResult result_;
};

TEST_P(StagedStep, LaunchesALayerWhenTheCopyOfTheLayerInItsPlaceIsDone) {
  for (int32_t copies = 0; copies < kLayers; ++copies) {
    device_->release(copies);
    await_written(std::min(copies + 2, kLayers));
    EXPECT_FALSE(poll()) << copies;
    EXPECT_EQ(device_->written(), std::min(copies + 2, kLayers));
  }
  device_->release(kLayers);
  while (!rig_->executor->poll(result_)) {
    std::this_thread::yield();
  }
  EXPECT_EQ(result_.samples.size(), 1U);
  EXPECT_GT(result_.held, Nanos{0});
}

TEST_P(StagedStep, EndsWithoutAResultWhenTheDeviceFails) {
  device_->release(1);
  EXPECT_FALSE(poll());
  device_->fail();
  while (!rig_->executor->poll(result_)) {
    std::this_thread::yield();
  }
  EXPECT_TRUE(result_.samples.empty());
}

INSTANTIATE_TEST_SUITE_P(Modes, StagedStep, ::testing::Values(StepMode::kGroups, StepMode::kLanes),
                         [](const ::testing::TestParamInfo<StepMode>& mode) {
                           return mode.param == StepMode::kLanes ? "lanes" : "groups";
                         });

}  // namespace
}  // namespace tandem
