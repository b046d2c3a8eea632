// What the executor asks of a device and of its caller: memory as planned, options checked, steps
// one at a time.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "exec/forward_executor.h"
#include "support/forwarding_device.h"
#include "support/random_model.h"
#include "support/step_driver.h"

namespace tandem {
namespace {

model::ModelConfig small_config() {
  model::ModelConfig config;
  config.layers = 2;
  config.hidden = 48;
  config.intermediate = 80;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 12;
  config.vocabulary = 90;
  config.max_positions = 256;
  config.tied_embeddings = true;
  return config;
}

// Passes everything on and counts what is allocated. May be lost.
class CountingDevice final : public reference::ForwardingDevice {
 public:
  explicit CountingDevice(device::Device& inner) : ForwardingDevice(inner) {}
  [[nodiscard]] Result<std::unique_ptr<device::Memory>> allocate(
      const device::MemoryRequest& request) override {
    if (bytes_allocated + request.bytes > limit_bytes) {
      return Error{ErrorCode::kResourceExhausted, "full", {}};
    }
    bytes_allocated += request.bytes;
    return ForwardingDevice::allocate(request);
  }

  [[nodiscard]] const Error* failure() const override { return is_lost ? &lost_ : nullptr; }

  int64_t bytes_allocated = 0;
  int64_t limit_bytes = int64_t{1} << 40;
  bool is_lost = false;

 private:
  const Error lost_{ErrorCode::kUnavailable, "the device is lost", ""};
};

class ExecutorMemory : public testing::Test {
 protected:
  ExecutorMemory()
      : device_(std::move(device::make_cpu_device({.threads = 2})).value()),
        counting_(*device_),
        model_(reference::make_model(small_config(), ElementType::kBF16, 3)),
        weights_(reference::pack(model_, ElementType::kBF16, *device_)) {
    options_.max_batched_tokens = 100;
    options_.max_logit_rows = 10;
    options_.compute_threads = 2;
    options_.kv_bytes = kv_layout_for(model_.config, options_).block_bytes() * 7 + 1000;
  }
  auto create(std::function<void()> on_complete = {}) {
    return ForwardExecutor::create(model_.config, weights_, counting_, options_,
                                   std::move(on_complete));
  }
  [[nodiscard]] int64_t planned_bytes() const {
    int64_t planned = kv_layout_for(model_.config, options_).block_bytes() * 7;
    for (const MemoryPlanRow& row : plan_workspaces(model_.config, weights_, options_)) {
      EXPECT_FALSE(row.what.empty());
      EXPECT_GT(row.bytes, 0) << row.what;
      planned += row.bytes;
    }
    return planned;
  }

  std::unique_ptr<device::Device> device_;
  CountingDevice counting_;
  const reference::Model model_;
  const model::Weights weights_;
  ExecutorOptions options_;
};

TEST_F(ExecutorMemory, ThePlanIsWhatIsAllocatedToTheByte) {
  for (const int32_t rows : {1, 33, 2048}) {
    options_.max_batched_tokens = rows;
    counting_.bytes_allocated = 0;
    ASSERT_TRUE(create().ok());
    EXPECT_EQ(counting_.bytes_allocated, planned_bytes()) << rows << " rows";
  }
}

TEST_F(ExecutorMemory, WholeBlocksOfThePoolAreUsed) {
  const auto executor = create();
  ASSERT_TRUE(executor.ok());
  EXPECT_EQ((*executor)->limits().total_blocks, 7);
  EXPECT_EQ((*executor)->limits().max_batched_tokens, 100);
  EXPECT_EQ((*executor)->limits().max_logit_rows, 10);
}

TEST_F(ExecutorMemory, MemoryThatIsNotThereIsAnErrorAtEachAllocation) {
  const int64_t all = planned_bytes();
  for (int64_t limit = 0; limit < all; limit += all / 20) {
    counting_.bytes_allocated = 0;
    counting_.limit_bytes = limit;
    const auto executor = create();
    ASSERT_FALSE(executor.ok());
    EXPECT_EQ(executor.error().code, ErrorCode::kResourceExhausted);
  }
}

TEST_F(ExecutorMemory, OptionsThatMakeNoSenseAreNamed) {
  const ExecutorOptions good = options_;
  const auto error_of = [&](auto change) {
    options_ = good;
    change(options_);
    const auto executor = create();
    EXPECT_FALSE(executor.ok());
    return executor.ok() ? std::string() : executor.error().param;
  };
  EXPECT_EQ(error_of([](auto& o) { o.max_batched_tokens = 0; }), "max_batched_tokens");
  EXPECT_EQ(error_of([](auto& o) { o.max_logit_rows = -3; }), "max_logit_rows");
  EXPECT_EQ(error_of([](auto& o) { o.kv_type = ElementType::kF16; }), "kv_type");
  for (const int32_t tokens : {-32, 8, 24, 48, 512}) {
    EXPECT_EQ(error_of([&](auto& o) { o.block_tokens = tokens; }), "block_tokens");
  }
  EXPECT_EQ(error_of([](auto& o) { o.kv_bytes = 0; }), "kv_bytes");
  EXPECT_EQ(error_of([](auto& o) { o.kv_bytes = -1; }), "kv_bytes");
  EXPECT_EQ(error_of([](auto& o) { o.kv_bytes = std::numeric_limits<int64_t>::max(); }),
            "kv_bytes");
}

TEST_F(ExecutorMemory, BlocksGrowUntilALayersPieceIsLargeEnough) {
  ExecutorOptions options;
  model::ModelConfig config = small_config();
  const auto block_tokens = [&](int32_t kv_heads, int32_t head_dim, ElementType type) {
    config.heads = config.kv_heads = kv_heads;
    config.head_dim = head_dim;
    options.kv_type = type;
    return kv_layout_for(config, options).block_tokens;
  };
  EXPECT_EQ(block_tokens(8, 128, ElementType::kBF16), 32);
  EXPECT_EQ(block_tokens(4, 64, ElementType::kBF16), 32);
  EXPECT_EQ(block_tokens(2, 64, ElementType::kBF16), 64);
  EXPECT_EQ(block_tokens(2, 64, ElementType::kF32), 32);
  EXPECT_EQ(block_tokens(1, 8, ElementType::kBF16), 256);
  options.block_tokens = 16;
  EXPECT_EQ(block_tokens(1, 8, ElementType::kBF16), 16);
}

TEST_F(ExecutorMemory, AStepsResultComesOnceAndTheListenerIsToldOnce) {
  std::atomic<int32_t> completions{0};
  auto executor = create([&] { ++completions; });
  ASSERT_TRUE(executor.ok());
  StepResult result;
  EXPECT_FALSE((*executor)->poll(result));
  reference::SequenceMaker maker((*executor)->limits());
  reference::Sequence sequence = maker.make({1, 2, 3}, 30);
  for (int32_t i = 1; i <= 5; ++i) {
    reference::decode(**executor, sequence, 1);
    EXPECT_FALSE((*executor)->poll(result));
  }
  executor.value().reset();
  EXPECT_EQ(completions, 5);
}

TEST_F(ExecutorMemory, StepsWithoutRowsOrWithoutSamplesEndToo) {
  auto created = create();
  ASSERT_TRUE(created.ok());
  ForwardExecutor& executor = **created;
  reference::Step empty;
  EXPECT_TRUE(empty.run(executor).samples.empty());
  reference::Step only_copies;
  only_copies.copy(BlockId{1}, BlockId{2});
  EXPECT_TRUE(only_copies.run(executor).samples.empty());
  reference::SequenceMaker maker(executor.limits());
  reference::Sequence sequence = maker.make({5, 6, 7, 8}, 30);
  reference::Step no_samples;
  no_samples.add(sequence, 3, 0);
  EXPECT_TRUE(no_samples.run(executor).samples.empty());
  EXPECT_EQ(reference::decode(executor, sequence, 1).size(), 0U);  // logits are not kept here
}

TEST_F(ExecutorMemory, AnExecutorCanEndWhileItsStepRuns) {
  std::atomic<int32_t> completions{0};
  auto executor = create([&] { ++completions; });
  ASSERT_TRUE(executor.ok());
  reference::SequenceMaker maker((*executor)->limits());
  const reference::Sequence sequence = maker.make({5, 6, 7, 8}, 30);
  StepInput input;
  input.slices.push_back({.sequence = sequence.id,
                          .tokens = sequence.tokens,
                          .first_position = 0,
                          .block_table = sequence.blocks,
                          .samples = {}});
  (*executor)->launch(input);
  executor.value().reset();
  EXPECT_EQ(completions, 1);
}

TEST_F(ExecutorMemory, ALostDeviceEndsTheStepWithoutResults) {
  auto executor = std::move(create()).value();
  EXPECT_EQ(executor->failure(), nullptr);
  reference::SequenceMaker maker(executor->limits());
  reference::Sequence sequence = maker.make({1, 2, 3}, 8);
  const std::vector<TokenId> tokens = {1, 2, 3};
  const SampleSpec sample{.sequence = sequence.id, .params = &sequence.params, .position = 3};
  StepInput input;
  input.step = 1;
  input.slices.push_back({.sequence = sequence.id,
                          .tokens = tokens,
                          .block_table = sequence.blocks,
                          .samples = std::span(&sample, 1)});
  executor->launch(input);
  counting_.is_lost = true;
  StepResult result;
  while (!executor->poll(result)) {
    std::this_thread::yield();
  }
  EXPECT_EQ(result.step, 1);
  EXPECT_TRUE(result.samples.empty());
  ASSERT_NE(executor->failure(), nullptr);
  EXPECT_EQ(executor->failure()->message, "the device is lost");
}

TEST_F(ExecutorMemory, OnALostDeviceNoExecutorIsMade) {
  counting_.is_lost = true;
  const auto executor = create();
  ASSERT_FALSE(executor.ok());
  EXPECT_EQ(executor.error().message, "the device is lost");
}

}  // namespace
}  // namespace tandem
