// Spans of the CUDA back end's streams in a timeline, played by tests/cuda_on_host.
#include "device/cuda/stream_trace.h"

#include <gmock/gmock.h>

#include <atomic>
#include <utility>
#include <vector>

#include "device/cuda/cuda_device.h"
#include "support/sizes.h"

namespace tandem::device::cuda {
namespace {

using observe::Span;

TEST(CudaTimeline, ShowsEachOpOfAStream) {
  constexpr int64_t kSpans = 1000;
  constexpr int kOps = 50;
  observe::Timeline timeline(kSpans);
  auto device = std::move(make_cuda_device({.accelerator = AcceleratorSpec{.backend = "cuda"},
                                            .device_memory_bytes = 16 * kMiB,
                                            .host_memory_bytes = kMiB,
                                            .timeline = &timeline}))
                    .value();
  const auto memory = std::move(device->allocate(MemoryKind::kDevice, 8 * kMiB)).value();
  const StreamId stream = device->create_stream(StreamKind::kDeviceToHost);
  for (int64_t i = 1; i <= kOps; ++i) {
    device->launch(stream, CopyOp{memory->data(), memory->data() + 4 * kMiB, i * 1024});
    if (i % 10 == 0) {
      device->synchronize(device->record(stream));
    }
  }
  device.reset();
  const std::string trace = timeline.chrome_trace();
  EXPECT_THAT(trace, testing::HasSubstr("0: to host"));
  size_t found = 0;
  for (size_t at = trace.find("\"copy\""); at != std::string::npos;
       at = trace.find("\"copy\"", at + 1)) {
    ++found;
  }
  EXPECT_EQ(found, kOps);
}

// The GPU's clock and the machine's are moved by the GPU's work alone.
class OneTrace : public testing::Test {
 protected:
  OneTrace() {
    cuda_on_host::set_gpu_clock([this] { return Nanos{gpu_time_}; });
    EXPECT_EQ(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0), cudaSuccess);
    EXPECT_EQ(trace_.open(stream_), cudaSuccess);
  }
  ~OneTrace() override {
    EXPECT_EQ(trace_.close(), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    cuda_on_host::set_gpu_clock({});
  }

  void pass(Nanos time) {
    clock_.advance(time);
    gpu_time_ += static_cast<int64_t>(static_cast<double>(time.count()) * gpu_rate_);
  }
  void run(Nanos time, int64_t number) {
    ASSERT_EQ(trace_.begin(), cudaSuccess);
    cuda_on_host::enqueue(stream_, [this, time] { pass(time); });
    ASSERT_EQ(trace_.end({"work", "turns", number}), cudaSuccess);
  }
  void collect() {
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    ASSERT_EQ(trace_.show(trace_.marks()), cudaSuccess);
  }

  static constexpr int64_t kSpans = 20000;
  double gpu_rate_ = 1;
  ManualClock clock_{};
  std::atomic<int64_t> gpu_time_{Nanos{std::chrono::hours(7)}.count()};
  observe::Timeline timeline_{kSpans};
  observe::Track& track_ = timeline_.add_track("accelerator", "one");
  StreamTrace trace_{track_, clock_};
  cudaStream_t stream_ = nullptr;
};

TEST_F(OneTrace, SpansHaveTheirOpsTimesOnTheMachinesClock) {
  constexpr double kMicro = 1e-6;
  std::vector<std::pair<Nanos, Nanos>> expected;
  for (int i = 1; i <= 40; ++i) {
    pass(std::chrono::microseconds(70));  // nothing runs
    for (int64_t k = 0; k < 3; ++k) {
      const Nanos begin = expected.empty() || k == 0 ? clock_.now() : expected.back().second;
      expected.emplace_back(begin, begin + std::chrono::microseconds(100 * i + k));
      run(std::chrono::microseconds(100 * i + k), k);
    }
    collect();
  }
  const std::vector<Span> spans = track_.spans();
  ASSERT_EQ(spans.size(), expected.size());
  for (size_t i = 0; i < spans.size(); ++i) {
    EXPECT_STREQ(spans[i].name, "work");
    EXPECT_EQ(spans[i].value, static_cast<int64_t>(i % 3));
    EXPECT_NEAR(to_seconds(spans[i].begin), to_seconds(expected[i].first), kMicro);
    EXPECT_NEAR(to_seconds(spans[i].end), to_seconds(expected[i].second), kMicro);
  }
}

TEST_F(OneTrace, SpansThatAreNotCollectedAreLeftOutAndLaterSpansAreShown) {
  for (int64_t i = 0; i < static_cast<int64_t>(StreamTrace::kMaxMarks) + 100; ++i) {
    run(std::chrono::microseconds(1), i);
  }
  EXPECT_EQ(trace_.marks(), static_cast<int64_t>(StreamTrace::kMaxMarks));
  collect();
  EXPECT_EQ(track_.spans().size(), StreamTrace::kMaxMarks);
  run(std::chrono::microseconds(1), -1);
  collect();
  EXPECT_EQ(track_.spans().back().value, -1);
}

// Over an hour the GPU's clock gains or loses 180 ms.
TEST_F(OneTrace, AGpuClockThatIsFastOrSlowIsFollowed) {
  constexpr double kHalfMilli = 5e-4;
  for (const double rate : {1 + 5e-5, 1 - 5e-5}) {
    gpu_rate_ = rate;
    for (int i = 0; i < 3600; ++i) {
      pass(std::chrono::milliseconds(990));
      run(std::chrono::milliseconds(10), i);
      collect();
      ASSERT_NEAR(to_seconds(track_.spans().back().end), to_seconds(clock_.now()), kHalfMilli) << i;
    }
  }
  const std::vector<Span> spans = track_.spans();
  for (size_t i = 1; i < spans.size(); ++i) {
    ASSERT_GE(spans[i].begin, spans[i - 1].end);
  }
}

// The distance of events a day apart is a float, so it is known to some milliseconds only; and the
// clocks are seconds apart.
TEST_F(OneTrace, TheFirstOpsAfterADayWithoutWorkHaveTheirTimes) {
  constexpr double kMicro = 1e-6;
  for (const double rate : {1.0, 1 + 5e-5, 1 - 5e-5}) {
    gpu_rate_ = rate;
    run(std::chrono::milliseconds(1), 0);
    collect();
    pass(std::chrono::hours(24) + std::chrono::microseconds(3417));
    for (int64_t i = 1; i <= 3; ++i) {
      run(std::chrono::milliseconds(1), i);
      collect();
      const Span last = track_.spans().back();
      EXPECT_NEAR(to_seconds(last.end), to_seconds(clock_.now()), kMicro) << rate << " " << i;
      EXPECT_NEAR(to_seconds(last.end - last.begin), 1e-3, kMicro) << rate << " " << i;
    }
  }
}

// A pump that sees a second's ops late moves the next ops by the clocks' drift at most.
TEST_F(OneTrace, OpsThatAreSeenLateMoveTheirFollowersLittle) {
  run(std::chrono::milliseconds(1100), 0);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  pass(std::chrono::milliseconds(400));
  collect();
  run(std::chrono::milliseconds(1), 1);
  collect();
  EXPECT_NEAR(to_seconds(track_.spans().back().end), to_seconds(clock_.now()), 2e-4);
}

}  // namespace
}  // namespace tandem::device::cuda
