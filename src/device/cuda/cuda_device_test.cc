// The CUDA back end over the host's CUDA of tests/cuda_on_host: memory, order, events and the ops
// that are more than one kernel. The kernels one by one: tests/ops.
#include "device/cuda/cuda_device.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/element_type.h"
#include "device/cuda/cuda_ops.h"
#include "device/cuda/kernels/attention.h"
#include "support/sizes.h"

namespace tandem::device::cuda {
namespace {

class CudaOnHost : public testing::Test {
 protected:
  CudaOnHost() {
    device_ = std::move(make_cuda_device({.accelerator = AcceleratorSpec{.backend = "cuda"},
                                          .device_memory_bytes = 64 * kMiB,
                                          .host_memory_bytes = 16 * kMiB}))
                  .value();
    memory_ = std::move(device_->allocate(MemoryKind::kDevice, 32 * kMiB)).value();
    stream_ = device_->create_stream();
  }
  void run(const Op& op) {
    device_->launch(stream_, op);
    device_->synchronize(device_->record(stream_));
  }
  template <class T>
  T* take(int64_t count) {
    used_ = (used_ + 255) / 256 * 256;
    T* piece = reinterpret_cast<T*>(memory_->data() + used_);
    used_ += count * static_cast<int64_t>(sizeof(T));
    EXPECT_LE(used_, memory_->bytes());
    return piece;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Memory> memory_;
  StreamId stream_{};
  int64_t used_ = 0;
  std::mt19937_64 random_{5};
};

TEST_F(CudaOnHost, SaysWhatItIs) {
  EXPECT_THAT(device_->caps().name, testing::HasSubstr("cuda:0 (host as GPU, sm_90"));
  EXPECT_EQ(device_->caps().backend, "cuda");
  EXPECT_EQ(device_->caps().free_memory_bytes, 64 * kMiB);
  EXPECT_EQ(device_->host().pinned_bytes, 16 * kMiB);
  EXPECT_FALSE(device_->host().cpus.empty());
}

TEST_F(CudaOnHost, MemoryIsZeroedCountedAndGivenBack) {
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kHostPinned}) {
    for (int round = 0; round < 2; ++round) {
      auto memory = device_->allocate(kind, 10 * kMiB);
      ASSERT_TRUE(memory.ok()) << memory.error().message;
      for (int64_t i = 0; i < 10 * kMiB; i += 4093) {
        ASSERT_EQ((*memory)->data()[i], std::byte{0});
      }
      std::memset((*memory)->data(), 0xff, static_cast<size_t>(10 * kMiB));
    }
  }
  const auto refused = device_->allocate(MemoryKind::kDevice, 33 * kMiB);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message,
              testing::AllOf(testing::HasSubstr("32.0 MiB of 64.0 MiB are left"),
                             testing::HasSubstr("--device-memory")));
}

TEST_F(CudaOnHost, AStreamKeepsItsOrderAndEventsOrderStreams) {
  constexpr int64_t kBytes = 4 * kMiB;
  auto* a = take<std::byte>(kBytes);
  auto* b = take<std::byte>(kBytes);
  auto host = std::move(device_->allocate(MemoryKind::kHostPinned, kBytes)).value();
  const StreamId back = device_->create_stream(StreamKind::kDeviceToHost);
  for (int round = 1; round <= 20; ++round) {
    std::memset(a, round, kBytes);
    device_->launch(stream_, CopyOp{b, a, kBytes});
    const EventId copied = device_->record_polled(stream_);
    device_->wait(back, copied);
    device_->launch(back, CopyOp{host->data(), b, kBytes});
    device_->synchronize(device_->record(back));
    EXPECT_TRUE(device_->query(copied));
    ASSERT_EQ(host->data()[0], static_cast<std::byte>(round));
    ASSERT_EQ(host->data()[kBytes - 1], static_cast<std::byte>(round));
  }
}

TEST_F(CudaOnHost, TheListenerHearsOfEachEventBeforeSynchronizeReturns) {
  std::atomic<int> calls{0};
  device_->set_listener([&] { ++calls; });
  for (int i = 1; i <= 50; ++i) {
    device_->synchronize(device_->record(stream_));
    ASSERT_EQ(calls.load(), i);
  }
  device_->synchronize(device_->record_polled(stream_));
  EXPECT_EQ(calls.load(), 50) << "the listener is not called for polled events";
  device_->set_listener({});
  device_->synchronize(device_->record(stream_));
  EXPECT_EQ(calls.load(), 50);
}

TEST_F(CudaOnHost, StreamsOfSeveralThreadsDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  std::vector<int64_t*> counters;
  for (int t = 0; t < 4; ++t) {
    counters.push_back(take<int64_t>(2));
  }
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, counter = counters[static_cast<size_t>(t)]] {
      const StreamId own = device_->create_stream();
      for (int64_t i = 1; i <= 200; ++i) {
        counter[0] = i;
        device_->launch(own, CopyOp{counter + 1, counter, sizeof(int64_t)});
        const EventId event = device_->record(own);
        while (!device_->query(event)) {
          std::this_thread::yield();
        }
        ASSERT_EQ(counter[1], i);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST_F(CudaOnHost, UploadsLargerThanTheRoomComeInPieces) {
  // Heads of 20 columns padded to 32, depth in groups of 300 padded to 320, more than two pieces.
  const kernels::PaddedDim n{4200, 20, 32};
  const kernels::PaddedDim k{2100, 300, 320};
  std::vector<float> source(static_cast<size_t>(n.logical * k.logical));
  for (size_t i = 0; i < source.size(); ++i) {
    source[i] = static_cast<float>(i % 251) - 100.0F;
  }
  auto* target = take<BFloat16>(n.padded() * k.padded());
  WeightMatrix matrix{.data = target, .n = n.padded(), .k = k.padded()};
  matrix.stored_bytes = device_->formats().weight_bytes(matrix.format, matrix.n, matrix.k);
  ASSERT_GT(n.logical * k.logical * 4, 32 * kMiB);
  ASSERT_EQ(matrix.stored_bytes, n.padded() * k.padded() * 2);
  run(UploadOp{.source = source.data(),
               .source_type = ElementType::kF32,
               .n = n,
               .k = k,
               .target = matrix,
               .target_data = target});
  for (int64_t row = 0; row < n.padded(); row += 13) {
    for (int64_t depth = 0; depth < k.padded(); ++depth) {
      const bool padding = row % 32 >= 20 || depth % 320 >= 300;
      const int64_t from = (row / 32 * 20 + row % 32) * k.logical + depth / 320 * 300 + depth % 320;
      const float wanted = padding ? 0.0F : source[static_cast<size_t>(from)];
      ASSERT_EQ(bf16_to_f32(target[row * k.padded() + depth]), wanted) << row << " " << depth;
    }
  }
}

TEST_F(CudaOnHost, GateAndUpAreMultipliedWithTheirOwnHalf) {
  const kernels::PaddedDim n{40, 40, 64};
  const kernels::PaddedDim k{32, 32, 32};
  std::vector<float> gate(40 * 32);
  std::vector<float> up(40 * 32);
  for (size_t i = 0; i < gate.size(); ++i) {
    gate[i] = std::sin(static_cast<float>(i));
    up[i] = std::cos(static_cast<float>(3 * i));
  }
  const WeightFormat format{.type = ElementType::kF32};
  auto* target = take<float>(128 * 32);
  const WeightMatrix matrix{.data = target, .format = format, .n = 128, .k = 32};
  UploadOp op{.source = gate.data(),
              .source_type = ElementType::kF32,
              .n = n,
              .k = k,
              .target = matrix,
              .target_data = target,
              .part = WeightPart::kGate};
  run(op);
  op.source = up.data();
  op.part = WeightPart::kUp;
  run(op);
  auto* x = take<float>(32);
  auto* y = take<float>(64);
  for (int64_t i = 0; i < 32; ++i) {
    x[i] = 0.1F * static_cast<float>(i);
  }
  run(GateUpOp{.x = x,
               .x_type = ElementType::kF32,
               .x_stride = 32,
               .rows = 1,
               .w = matrix,
               .activated = y,
               .activated_stride = 64});
  for (size_t column = 0; column < 64; ++column) {
    double g = 0;
    double u = 0;
    for (size_t i = 0; i < 32 && column < 40; ++i) {
      g += static_cast<double>(x[i]) * static_cast<double>(gate[column * 32 + i]);
      u += static_cast<double>(x[i]) * static_cast<double>(up[column * 32 + i]);
    }
    ASSERT_NEAR(y[column], g / (1 + std::exp(-g)) * u, 1e-5) << column;
  }
}

// A step with several slices, and what its attention must give.
class CudaAttention : public CudaOnHost {
 protected:
  struct Slice {
    int32_t first_position;
    int32_t rows;
  };

  void prepare(const std::vector<Slice>& shapes, int32_t window, int64_t workspace_pairs) {
    layout_ = {ElementType::kF32, 2, 2, 40, 64, 16};
    const auto pool_bytes = layout_.block_bytes() * 100;
    kv_ = take<std::byte>(pool_bytes);
    auto* values = reinterpret_cast<float*>(kv_);
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    for (int64_t i = 0; i < pool_bytes / 4; ++i) {
      values[i] = uniform(random_);
    }
    auto* slices = take<kernels::AttentionSlice>(static_cast<int64_t>(shapes.size()));
    int32_t row = 0;
    int32_t block = 0;
    int32_t longest = 0;
    for (size_t s = 0; s < shapes.size(); ++s) {
      const int32_t context = shapes[s].first_position + shapes[s].rows;
      auto* table = take<int32_t>(100);
      for (int32_t i = 0; i * 16 < context; ++i) {
        table[i] = (block++ * 37) % 100;
      }
      slices[s] = {row, shapes[s].rows, shapes[s].first_position, table};
      row += shapes[s].rows;
      longest = std::max(longest, context);
    }
    rows_ = row;
    const int64_t width = kHeads * layout_.padded_head_dim;
    auto* q = take<float>(row * width);
    for (int64_t i = 0; i < row * width; ++i) {
      q[i] = i % 64 < 40 ? uniform(random_) : 0.0F;
    }
    out_ = take<float>((row + 1) * width);
    std::fill_n(out_, (row + 1) * width, 7.0F);
    op_ = {.batch = {.slices = slices,
                     .host_slices = slices,
                     .shape = {.rows = row + 1,  // the last row is in no slice
                               .slices = static_cast<int32_t>(shapes.size()),
                               .max_context = longest},
                     .layout = layout_,
                     .heads = kHeads,
                     .window = window},
           .q = q,
           .kv = kv_,
           .layer = 1,
           .scale = 0.2F,
           .out = out_,
           .out_stride = width,
           .out_type = ElementType::kF32};
    op_.batch.workspace_floats =
        workspace_pairs * attention_pair_bytes(layout_, longest, window) / 4;
    op_.batch.workspace = take<float>(op_.batch.workspace_floats);
  }

  void expect_right() {
    const int64_t width = layout_.padded_head_dim;
    for (int32_t s = 0; s < op_.batch.shape.slices; ++s) {
      const kernels::AttentionSlice& slice = op_.batch.slices[s];
      for (int64_t r = 0; r < slice.row_count; ++r) {
        for (int64_t head = 0; head < kHeads; ++head) {
          const std::vector<double> wanted = oracle(slice, slice.row_begin + r, head);
          const float* got = out_ + (slice.row_begin + r) * op_.out_stride + head * width;
          for (int64_t dim = 0; dim < width; ++dim) {
            ASSERT_NEAR(got[dim], wanted[static_cast<size_t>(dim)], 1e-5)
                << "slice " << s << " row " << r << " head " << head << " dim " << dim;
          }
        }
      }
    }
    for (int64_t i = 0; i < kHeads * width; ++i) {
      ASSERT_EQ(out_[rows_ * op_.out_stride + i], 7.0F) << "a row of no slice is left alone";
    }
  }

  static constexpr int32_t kHeads = 6;
  kernels::KvLayout layout_;
  std::byte* kv_ = nullptr;
  float* out_ = nullptr;
  int64_t rows_ = 0;
  AttentionOp op_;

 private:
  std::vector<double> oracle(const kernels::AttentionSlice& slice, int64_t row, int64_t head) {
    const int64_t end = slice.first_position + row - slice.row_begin + 1;
    const int64_t begin = op_.batch.window == 0 ? 0 : std::max<int64_t>(end - op_.batch.window, 0);
    const int64_t kv_head = head / 3;
    const kernels::KvLayout own = gpu_layout(layout_);
    std::vector<double> sums(static_cast<size_t>(layout_.padded_head_dim), 0.0);
    double total = 0;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t block = slice.block_table[t / 16];
      const auto* key = reinterpret_cast<const float*>(kv_ + layout_.key_offset(block, 1, kv_head));
      const auto* value =
          reinterpret_cast<const float*>(kv_ + layout_.value_offset(block, 1, kv_head));
      const float* q = static_cast<const float*>(op_.q) + (row * kHeads + head) * 64;
      double score = 0;
      for (int64_t dim = 0; dim < 40; ++dim) {
        score +=
            static_cast<double>(q[dim]) * static_cast<double>(key[own.key_element(t % 16, dim)]);
      }
      const double weight = std::exp(score * static_cast<double>(op_.scale));
      total += weight;
      for (int64_t dim = 0; dim < 40; ++dim) {
        sums[static_cast<size_t>(dim)] +=
            weight * static_cast<double>(value[own.value_element(t % 16, dim)]);
      }
    }
    for (double& sum : sums) {
      sum /= total;
    }
    return sums;
  }
};

TEST_F(CudaAttention, AnyWorkspaceGivesTheSameRightResult) {
  for (const int32_t window : {0, 1, 30, 256, 300}) {
    std::vector<float> first;
    for (const int64_t pairs : {1, 4, 7, 1000}) {
      used_ = 0;
      random_.seed(9);
      prepare({{0, 3}, {254, 5}, {600, 1}, {30, 2}}, window, pairs);
      run(AttentionPlanOp{op_.batch});
      run(op_);
      SCOPED_TRACE(testing::Message() << "window " << window << ", room for " << pairs);
      expect_right();
      const std::vector<float> all(out_, out_ + rows_ * op_.out_stride);
      if (!first.empty()) {
        ASSERT_EQ(all, first);
      }
      first = all;
    }
  }
}

TEST_F(CudaAttention, ByThePlanOfAnotherStepItStops) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  prepare({{0, 3}}, 0, 4);
  EXPECT_DEATH(run(op_), "attention of 1 slices, window 0, by the plan of 0");
}

TEST_F(CudaAttention, WithoutRoomForOneRowItStops) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  prepare({{300, 1}}, 0, 4);
  op_.batch.workspace_floats = 2 * record_floats(layout_) - 1;
  device_->launch(stream_, AttentionPlanOp{op_.batch});
  EXPECT_DEATH(run(op_), "attention over 301 tokens needs a workspace of");
}

}  // namespace
}  // namespace tandem::device::cuda
