// A GPU that fails or is full, played by the host's CUDA of tests/cuda_on_host: its calls that may
// wait never return once the error is known, so each of these tests also shows that none is made.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>
#include <tuple>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_streams.h"
#include "device/cuda/gpu_health.h"
#include "support/sizes.h"

namespace tandem::device::cuda {
namespace {

using cuda_on_host::GpuFault;
using testing::AllOf;
using testing::HasSubstr;

Result<std::unique_ptr<Device>> open_device(int64_t device_bytes = 64 * kMiB,
                                            observe::Timeline* timeline = nullptr) {
  return make_cuda_device({.accelerator = AcceleratorSpec{.backend = "cuda"},
                           .device_memory_bytes = device_bytes,
                           .host_memory_bytes = 16 * kMiB,
                           .timeline = timeline});
}

class CudaFailure : public testing::Test {
 protected:
  ~CudaFailure() override { cuda_on_host::mend(); }

  void open(observe::Timeline* timeline = nullptr) {
    device_ = std::move(open_device(64 * kMiB, timeline)).value();
    memory_ = std::move(device_->allocate(MemoryKind::kDevice, 4 * kMiB)).value();
    compute_ = device_->create_stream();
    other_ = device_->create_stream(StreamKind::kDeviceToHost);
    device_->set_listener([this] { ++calls_; });
  }
  // A kernel, a copy and an event on one stream, and the same behind it on another.
  EventId work() {
    const EventId first = work_on(compute_);
    device_->wait(other_, first);
    return work_on(other_);
  }
  void close() {
    memory_.reset();
    device_.reset();
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Memory> memory_;
  StreamId compute_{};
  StreamId other_{};
  std::atomic<int> calls_{0};

 private:
  // Both streams read the same bytes, and each writes to places of its own.
  EventId work_on(StreamId stream) {
    std::byte* data = memory_->data();
    std::byte* own = data + (stream == compute_ ? 1 : 2) * kMiB;
    device_->launch(stream, CastOp{.x = data,
                                   .x_type = ElementType::kF32,
                                   .x_stride = 64,
                                   .rows = 4,
                                   .columns = 64,
                                   .y = own,
                                   .y_type = ElementType::kBF16,
                                   .y_stride = 64});
    device_->launch(stream, CopyOp{own + 4096, data, 4096});
    return device_->record(stream);
  }
};

class CudaFailureIn : public CudaFailure,
                      public testing::WithParamInterface<std::tuple<GpuFault::In, int, bool>> {};

TEST_P(CudaFailureIn, EndsAllWaitingAndIsToldWithTheCure) {
  const auto [in, at, with_timeline] = GetParam();
  observe::Timeline timeline(100);
  open(with_timeline ? &timeline : nullptr);
  device_->synchronize(work());
  EXPECT_EQ(device_->failure(), nullptr);
  cuda_on_host::fail({.in = in, .at = at, .error = cudaErrorECCUncorrectable});
  std::vector<EventId> events;
  for (int i = 0; i < 10; ++i) {
    events.push_back(work());
  }
  device_->synchronize(events.back());
  ASSERT_NE(device_->failure(), nullptr);
  EXPECT_EQ(device_->failure()->code, ErrorCode::kUnavailable);
  EXPECT_THAT(device_->failure()->message,
              AllOf(HasSubstr("the GPU failed while"), HasSubstr("uncorrectable ECC error"),
                    HasSubstr("CUDA error 214"), HasSubstr("nvidia-smi -q -d ECC")));
  for (const EventId event : events) {
    EXPECT_TRUE(device_->query(event));
  }
  EXPECT_GT(calls_.load(), 0);

  const std::string first = device_->failure()->message;
  const EventId later = work();
  EXPECT_TRUE(device_->query(later));
  device_->synchronize(later);
  device_->synchronize(device_->record_polled(device_->create_stream()));
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kHostPinned}) {
    const auto refused = device_->allocate(kind, kMiB);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message, first);
  }
  EXPECT_EQ(device_->failure()->message, first) << "the first error is the cause";
  close();
}

INSTANTIATE_TEST_SUITE_P(
    Anywhere, CudaFailureIn,
    testing::Combine(testing::Values(GpuFault::In::kKernel, GpuFault::In::kCopy,
                                     GpuFault::In::kLaunch, GpuFault::In::kEvent),
                     testing::Values(1, 2, 9), testing::Bool()));

TEST_F(CudaFailure, NamesTheOpWhoseLaunchFailed) {
  open();
  cuda_on_host::fail({.in = GpuFault::In::kLaunch, .error = cudaErrorLaunchFailure});
  device_->synchronize(work());
  ASSERT_NE(device_->failure(), nullptr);
  EXPECT_THAT(device_->failure()->message,
              AllOf(HasSubstr("while launching cast: unspecified launch failure"),
                    HasSubstr("CUDA error 719"), HasSubstr("look for 'Xid'")));
  close();
}

TEST_F(CudaFailure, ThreadsThatWaitGoOnAndTheListenerIsCalledFirst) {
  open();
  std::atomic<bool> heard{false};
  device_->set_listener([&] { heard = true; });
  cuda_on_host::fail({.in = GpuFault::In::kKernel});
  std::vector<std::thread> waiting;
  for (int i = 0; i < 4; ++i) {
    const EventId event = device_->record_polled(compute_);
    static_cast<void>(work());
    const EventId behind = work();
    waiting.emplace_back([this, event, behind, &heard] {
      device_->synchronize(event);
      device_->synchronize(behind);
      EXPECT_NE(device_->failure(), nullptr);
      EXPECT_TRUE(heard.load());
    });
  }
  for (std::thread& thread : waiting) {
    thread.join();
  }
  close();
}

// The error shows in the first call that asks, which may be the last call of all.
TEST_F(CudaFailure, FoundAtTheEndItEndsTheDeviceToo) {
  open();
  cuda_on_host::fail({.in = GpuFault::In::kKernel});
  device_->launch(compute_, CastOp{.x = memory_->data(),
                                   .x_type = ElementType::kF32,
                                   .x_stride = 64,
                                   .rows = 1,
                                   .columns = 64,
                                   .y = memory_->data() + kMiB,
                                   .y_type = ElementType::kBF16,
                                   .y_stride = 64});
  close();
}

TEST_F(CudaFailure, AnIdleListenerThatWasTakenAwayIsNotCalled) {
  open();
  device_->set_listener({});
  cuda_on_host::fail({.in = GpuFault::In::kKernel});
  const int before = calls_.load();
  device_->synchronize(work());
  EXPECT_NE(device_->failure(), nullptr);
  EXPECT_EQ(calls_.load(), before);
  close();
}

// A failure that CUDA does not know of, such as a refusal of cuBLASLt, leaves events that can be
// recorded and asked for. None may be waited for.
TEST(CudaStreamsFailure, AnEventRecordedMeanwhileHoldsNothingUp) {
  constexpr int kRounds = 300;
  std::vector<std::byte> own(static_cast<size_t>(CudaStreams::own_bytes({})));
  for (int i = 0; i < kRounds; ++i) {
    GpuHealth health;
    CudaStreams streams(0, health, own.data(), {}, nullptr);
    const StreamId stream = streams.add(StreamKind::kCompute);
    std::atomic<bool> records{false};
    std::thread recorder([&] {
      while (!health.failed()) {
        streams.record(stream, true);
        records = true;
      }
    });
    while (!records) {
      std::this_thread::yield();
    }
    streams.note(cudaErrorUnknown, "playing");
    recorder.join();
    streams.synchronize(streams.record(stream, true));
  }
}

// ---------------------------------------------------------------- full memory

TEST_F(CudaFailure, FullMemoryAtTheStartIsRefusedWithNumbersAndLeavesNothingBehind) {
  cuda_on_host::fail({.in = GpuFault::In::kMemory});
  const auto refused = open_device();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(refused.error().param, "device-memory");
  EXPECT_THAT(
      refused.error().message,
      AllOf(HasSubstr("64.0 MiB of GPU memory are not to be had"), HasSubstr("out of memory"),
            HasSubstr("15.00 GiB of 16.00 GiB are free"), HasSubstr("--device-memory")));
  open();
  device_->synchronize(work());
  EXPECT_EQ(device_->failure(), nullptr) << "the refusal does not touch the next device";
  close();
}

TEST_F(CudaFailure, NothingIsTakenOnceTheDeviceIsOpen) {
  open();
  cuda_on_host::fail({.in = GpuFault::In::kMemory});
  const std::vector<float> source(64 * 32, 1.0F);
  WeightMatrix matrix{.data = memory_->data(), .n = 64, .k = 32};
  matrix.stored_bytes = device_->formats().weight_bytes(matrix.format, matrix.n, matrix.k);
  for (const StreamId stream : {compute_, other_, compute_}) {
    device_->launch(stream, UploadOp{.source = source.data(),
                                     .source_type = ElementType::kF32,
                                     .n = {64, 64, 64},
                                     .k = {32, 32, 32},
                                     .target = matrix,
                                     .target_data = memory_->data()});
    device_->synchronize(device_->record(stream));
    ASSERT_EQ(device_->failure(), nullptr);
    ASSERT_EQ(*reinterpret_cast<BFloat16*>(memory_->data()), f32_to_bf16(1.0F));
  }
  close();
}

TEST_F(CudaFailure, WhatTheBackEndNeedsBesideCounts) {
  cuda_on_host::Machine small;
  small.free_bytes = 1000 * static_cast<size_t>(kMiB);
  cuda_on_host::pretend(small);
  const auto refused = open_device(990 * kMiB);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("990.0 MiB of GPU memory are asked for"),
                                             HasSubstr("beside"), HasSubstr("1000.0 MiB free")));
  auto fits = open_device(600 * kMiB);
  ASSERT_TRUE(fits.ok()) << fits.error().message;
  fits->reset();
  auto by_default = open_device(0);
  ASSERT_TRUE(by_default.ok()) << by_default.error().message;
  EXPECT_LT((*by_default)->caps().free_memory_bytes, 900 * kMiB);
  EXPECT_GT((*by_default)->caps().free_memory_bytes, 500 * kMiB);
  by_default->reset();
  cuda_on_host::pretend({});
}

TEST(GpuFailure, SaysWhatToDo) {
  EXPECT_THAT(gpu_failure(cudaErrorMemoryAllocation, "launching gemm").message,
              AllOf(HasSubstr("while launching gemm: out of memory"),
                    HasSubstr("smaller --device-memory")));
}

}  // namespace
}  // namespace tandem::device::cuda
