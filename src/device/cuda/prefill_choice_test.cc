// Which kernels attend prompts: by variables, by a trial, and in the steps of a device.
#include "device/cuda/prefill_choice.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cuda_on_host/flash_on_host.h"
#include "device/cuda/cuda_device.h"
#include "support/sizes.h"
#include "support/variable.h"

namespace tandem::device::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

cudaError_t run_wrongly(cudaStream_t stream, const flash::Shape& shape,
                        const flash::Sequences& sequences, const flash::Room& room,
                        const flash::Plan& plan, const flash::Operands& operands) {
  flash::Operands wrong = operands;
  wrong.scale = 0;
  return flash::hopper::run(stream, shape, sequences, room, plan, wrong);
}
cudaError_t run_until_lost(cudaStream_t stream, const flash::Shape&, const flash::Sequences&,
                           const flash::Room&, const flash::Plan&, const flash::Operands&) {
  cuda_on_host::fail({.in = cuda_on_host::GpuFault::In::kKernel});
  cuda_on_host::enqueue(stream, [] {});
  return cudaGetLastError();
}

class PrefillChoiceOnHost : public testing::Test {
 protected:
  PrefillChoiceOnHost() {
    void* room = nullptr;
    EXPECT_EQ(cudaMalloc(&room, kRoomBytes), cudaSuccess);
    question_ = {.gpu = {.name = "a GPU", .major = 9, .minor = 0},
                 .flashinfer = true,
                 .room = static_cast<std::byte*>(room),
                 .room_bytes = kRoomBytes};
  }
  ~PrefillChoiceOnHost() override { EXPECT_EQ(cudaFree(question_.room), cudaSuccess); }
  Result<PrefillChoice> choose() { return choose_prefill(question_, health_); }
  void expect_refusal(const char* words) {
    const auto refused = choose();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(refused.error().param, kPrefillVariable);
    EXPECT_THAT(refused.error().message,
                AllOf(HasSubstr("TANDEM_CUDA_PREFILL=hopper"), HasSubstr(words)));
  }

  static constexpr int64_t kRoomBytes = 48 * kMiB;
  const Variable trial_{kPrefillVariable, "auto"};
  PrefillQuestion question_;
  GpuHealth health_;
};

TEST_F(PrefillChoiceOnHost, WithoutTheKernelsOrTheGpuForThemNothingIsTried) {
  EXPECT_FALSE(choose().value().any());
  {
    const Variable wanted(kPrefillVariable, "hopper");
    expect_refusal("this build has not got them; run tools/gpu/install_nvcc.sh");
  }
  const Variable built(cuda_on_host::kHopperVariable, "1");
  question_.gpu.major = 8;
  EXPECT_FALSE(choose().value().any());
  const Variable wanted(kPrefillVariable, "hopper");
  expect_refusal("a GPU has compute capability 8.0, they need 9.0");
  question_.flashinfer = false;
  expect_refusal("TANDEM_CUDA_ATTENTION");
}

TEST_F(PrefillChoiceOnHost, AVariableTakesTheTrialsPlace) {
  const Variable built(cuda_on_host::kHopperVariable, "1");
  {
    const Variable wanted(kPrefillVariable, "hopper");
    const PrefillChoice choice = choose().value();
    EXPECT_EQ(choice.from_64, 0);
    EXPECT_EQ(choice.from_128, 0);
  }
  {
    const Variable wanted(kPrefillVariable, "ampere");
    EXPECT_FALSE(choose().value().any());
  }
  const Variable wanted(kPrefillVariable, "fa3");
  const auto refused = choose();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("TANDEM_CUDA_PREFILL=fa3: give ampere"));
}

TEST_F(PrefillChoiceOnHost, UnaskedForTheyAreNotTried) {
  const Variable built(cuda_on_host::kHopperVariable, "1");
  const Variable wanted(kPrefillVariable, "");
  question_.tried.run_call = run_until_lost;
  EXPECT_FALSE(choose().value().any());
  EXPECT_FALSE(health_.failed());
}

TEST_F(PrefillChoiceOnHost, KernelsWithOtherResultsAreNotUsed) {
  const Variable built(cuda_on_host::kHopperVariable, "1");
  question_.tried.run_call = run_wrongly;
  EXPECT_FALSE(choose().value().any());
  const Variable wanted(kPrefillVariable, "hopper");
  expect_refusal("% from the kernels' for every GPU");
}

TEST_F(PrefillChoiceOnHost, WithoutMemoryForATrialTheyAreNotUsed) {
  const Variable built(cuda_on_host::kHopperVariable, "1");
  question_.room_bytes = kMiB;
  EXPECT_FALSE(choose().value().any());
  const Variable wanted(kPrefillVariable, "hopper");
  expect_refusal("too little GPU memory");
}

TEST_F(PrefillChoiceOnHost, AGpuThatTheTrialLosesEndsTheStartWithTheCure) {
  const Variable built(cuda_on_host::kHopperVariable, "1");
  question_.tried.run_call = run_until_lost;
  const auto lost = choose();
  ASSERT_FALSE(lost.ok());
  EXPECT_THAT(lost.error().message,
              AllOf(HasSubstr("unspecified launch failure"),
                    HasSubstr("Start again with TANDEM_CUDA_PREFILL=ampere")));
  EXPECT_TRUE(health_.failed());
  cuda_on_host::mend();
}

TEST(PrefillChoice, GoesByRowsOfAllHeadsAndSequencesAndByWindows) {
  const PrefillChoice choice{.from_64 = 1000, .from_128 = 2000, .rows_each = 100};
  EXPECT_TRUE(PrefillChoice{.from_64 = 1}.any());
  EXPECT_FALSE(PrefillChoice{}.any());
  flash::Shape shape{.heads = 8, .kv_heads = 2, .head_dim = 64, .page_tokens = 32};
  EXPECT_FALSE(choice.hopper(shape, 1, 124, 124));
  EXPECT_TRUE(choice.hopper(shape, 1, 125, 125));
  EXPECT_FALSE(choice.hopper(shape, 2, 199, 125));
  EXPECT_TRUE(choice.hopper(shape, 2, 200, 125));
  shape.head_dim = 128;
  EXPECT_FALSE(choice.hopper(shape, 1, 125, 125));
  EXPECT_TRUE(choice.hopper(shape, 1, 250, 300));
  shape.window = 300;
  EXPECT_TRUE(choice.hopper(shape, 1, 250, 300));
  EXPECT_FALSE(choice.hopper(shape, 1, 250, 301));
  EXPECT_FALSE(PrefillChoice{}.hopper(shape, 1, 1 << 20, 1 << 20));
}

// ---------------------------------------------------------------- steps of a device

struct Slice {
  int32_t first_position = 0;
  int32_t rows = 1;
};

class StepsOnHost {
 public:
  explicit StepsOnHost(const char* kernels) : wanted_(kPrefillVariable, kernels) {
    device_ = std::move(make_cuda_device({.accelerator = AcceleratorSpec{.backend = "cuda"},
                                          .device_memory_bytes = 64 * kMiB,
                                          .host_memory_bytes = kMiB}))
                  .value();
    stream_ = device_->create_stream();
  }
  [[nodiscard]] Device& device() const { return *device_; }

  // The same operands for every instance.
  std::vector<BFloat16> attend(const std::vector<Slice>& shapes, int32_t window) {
    constexpr int64_t kColumns = int64_t{kHeads} * 64;
    const kernels::KvLayout layout{ElementType::kBF16, 1, 2, 64, 64, 32};
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    const auto kv = take<BFloat16>(layout.block_bytes() / 2 * kBlocks);
    const auto table = take<int32_t>(kBlocks);
    const auto slices = take<kernels::AttentionSlice>(static_cast<int64_t>(shapes.size()));
    for (int32_t i = 0; i < kBlocks; ++i) {
      data<int32_t>(table)[i] = i * 7 % kBlocks;
    }
    AttentionShape known{.slices = static_cast<int32_t>(shapes.size())};
    for (size_t i = 0; i < shapes.size(); ++i) {
      data<kernels::AttentionSlice>(slices)[i] = {known.rows, shapes[i].rows,
                                                  shapes[i].first_position, data<int32_t>(table)};
      known.rows += shapes[i].rows;
      known.max_context = std::max(known.max_context, shapes[i].first_position + shapes[i].rows);
    }
    const auto q = take<BFloat16>(known.rows * kColumns);
    const auto out = take<BFloat16>(known.rows * kColumns);
    for (const Memory* each : {kv.get(), q.get()}) {
      std::generate_n(reinterpret_cast<BFloat16*>(each->data()), each->bytes() / 2,
                      [&] { return f32_to_bf16(uniform(random)); });
    }
    const int64_t workspace_bytes = device_->formats().attention_workspace_bytes(
        {.layout = layout, .heads = kHeads, .max_context = known.max_context});
    const auto workspace = take<std::byte>(workspace_bytes);
    const AttentionBatch batch{.slices = data<kernels::AttentionSlice>(slices),
                               .host_slices = data<kernels::AttentionSlice>(slices),
                               .shape = known,
                               .layout = layout,
                               .heads = kHeads,
                               .window = window,
                               .workspace = data<float>(workspace),
                               .workspace_floats = workspace_bytes / 4};
    device_->launch(stream_, AttentionPlanOp{batch});
    device_->launch(stream_, AttentionOp{.batch = batch,
                                         .q = q->data(),
                                         .q_type = ElementType::kBF16,
                                         .kv = kv->data(),
                                         .scale = 0.2F,
                                         .out = out->data(),
                                         .out_stride = kColumns});
    device_->synchronize(device_->record(stream_));
    return {data<BFloat16>(out), data<BFloat16>(out) + known.rows * kColumns};
  }

 private:
  template <class T>
  std::unique_ptr<Memory> take(int64_t count) {
    return std::move(
               device_->allocate(MemoryKind::kDevice, count * static_cast<int64_t>(sizeof(T))))
        .value();
  }
  template <class T>
  static T* data(const std::unique_ptr<Memory>& memory) {
    return reinterpret_cast<T*>(memory->data());
  }

  static constexpr int32_t kHeads = 4;
  static constexpr int32_t kBlocks = 20;
  const Variable wanted_;
  std::unique_ptr<Device> device_;
  StreamId stream_{};
};

TEST(PrefillSteps, ChunksWithoutAWindowGoToTheKernelsForHopper) {
  const Variable built(cuda_on_host::kHopperVariable, "1");
  struct Step {
    std::vector<Slice> slices;
    int32_t window = 0;
    int64_t runs = 0;
  };
  const Step steps[] = {
      {{{0, 40}}, 0, 1},
      {{{50, 1}, {300, 1}, {14, 3}, {100, 33}}, 0, 1},
      {{{14, 3}, {100, 33}, {50, 1}}, 0, 1},
      {{{50, 1}, {300, 1}}, 0, 0},
      {{{14, 3}, {50, 1}, {100, 33}}, 0, 0},  // one call
      {{{50, 1}, {14, 3}, {100, 33}}, 132, 0},
      {{{50, 1}, {14, 3}, {100, 33}}, 133, 1},  // hides nothing
  };
  std::vector<std::vector<BFloat16>> results;
  {
    StepsOnHost usual("ampere");
    EXPECT_THAT(usual.device().caps().name, HasSubstr(", FlashInfer)"));
    for (const Step& step : steps) {
      const int64_t before = cuda_on_host::hopper_runs();
      results.push_back(usual.attend(step.slices, step.window));
      EXPECT_EQ(cuda_on_host::hopper_runs(), before);
    }
  }
  StepsOnHost hopper("hopper");
  EXPECT_THAT(hopper.device().caps().name, HasSubstr("FlashInfer, prompts by Hopper's kernels"));
  EXPECT_THAT(hopper.device().caps().identity, HasSubstr("FlashInfer, prompts: hopper"));
  for (size_t i = 0; i < std::size(steps); ++i) {
    const int64_t before = cuda_on_host::hopper_runs();
    EXPECT_TRUE(hopper.attend(steps[i].slices, steps[i].window) == results[i]) << "step " << i;
    EXPECT_EQ(cuda_on_host::hopper_runs() - before, steps[i].runs) << "step " << i;
  }
}

TEST(PrefillSteps, ADeviceThatTheTrialLosesIsNotMade) {
  const Variable trial(kPrefillVariable, "auto");
  const Variable built(cuda_on_host::kHopperVariable, "1");
  cuda_on_host::fail({.in = cuda_on_host::GpuFault::In::kEvent});
  const auto lost = make_cuda_device({.accelerator = AcceleratorSpec{.backend = "cuda"},
                                      .device_memory_bytes = 64 * kMiB,
                                      .host_memory_bytes = kMiB});
  ASSERT_FALSE(lost.ok());
  EXPECT_THAT(lost.error().message, HasSubstr("TANDEM_CUDA_PREFILL=ampere"));
  cuda_on_host::mend();
}

}  // namespace
}  // namespace tandem::device::cuda
