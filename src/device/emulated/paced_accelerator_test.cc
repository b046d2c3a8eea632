// The emulated accelerator against the clock. Everything asserted here is a lower bound of time, or
// a count: what a slow machine does cannot fail it.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "device/emulated/cost_model.h"
#include "device/emulated/emulated_accelerator.h"
#include "support/sizes.h"

namespace tandem::device {
namespace {

std::unique_ptr<EmulatedAccelerator> make_device(std::string_view text) {
  auto spec = parse_emulation_spec(text);
  CHECK(spec.ok(), "{}", spec.error().message);
  auto device = make_emulated_accelerator(
      {.spec = *spec, .device_memory_bytes = 64 * kMiB, .host_memory_bytes = 32 * kMiB});
  CHECK(device.ok(), "{}", device.error().message);
  return std::move(device).value();
}

std::unique_ptr<Memory> take(Device& device, MemoryKind kind, int64_t bytes) {
  auto memory = device.allocate(kind, bytes);
  CHECK(memory.ok(), "{}", memory.error().message);
  return std::move(memory).value();
}

float* floats(const Memory& memory) { return reinterpret_cast<float*>(memory.data()); }

TEST(PacedAccelerator, ItsNameSaysThatItIsPacedOrHollow) {
  EXPECT_NE(make_device("pace=h100")->caps().name.find("paced as h100"), std::string::npos);
  EXPECT_NE(make_device("pace=a10,hollow")->caps().name.find("hollow"), std::string::npos);
  EXPECT_NE(make_device("")->caps().name.find("free-running"), std::string::npos);
}

TEST(PacedAccelerator, AnEventCompletesNoEarlierThanModelled) {
  const auto device = make_device("pace=h200,slowdown=500");
  const StreamId stream = device->create_stream();
  const auto memory = take(*device, MemoryKind::kDevice, 2 * kMiB);
  const CopyOp copy{memory->data(), memory->data() + kMiB, kMiB};
  const Nanos modelled = op_time(*find_profile("h200"), copy) * 500;
  const SteadyClock clock;
  const Nanos begin = clock.now();
  constexpr int kCopies = 20;
  for (int i = 0; i < kCopies; ++i) {
    device->launch(stream, copy);
  }
  device->synchronize(device->record(stream));
  EXPECT_GE(clock.now() - begin, modelled * kCopies);
  const StreamStatistics own = device->statistics().streams.at(0);
  EXPECT_EQ(own.ops, kCopies);
  EXPECT_EQ(own.events, 1);
  EXPECT_GE(own.busy, modelled * kCopies - Nanos{kCopies * 500});  // roundings
}

TEST(PacedAccelerator, OverrunsAreCountedWhereTheModelAsksForNextToNothing) {
  const auto device = make_device("pace=h200,slowdown=0.001");
  const StreamId stream = device->create_stream();
  const auto memory = take(*device, MemoryKind::kDevice, 32 * kMiB);
  for (int i = 0; i < 5; ++i) {
    device->launch(stream, CopyOp{memory->data(), memory->data() + 16 * kMiB, 16 * kMiB});
    device->synchronize(device->record(stream));
  }
  const DeviceStatistics sum = device->statistics();
  EXPECT_EQ(sum.streams.at(0).overruns, 5);
  EXPECT_GT(sum.streams.at(0).lateness, Nanos{0});
  EXPECT_EQ(sum.overrun_share(), 1.0);
  EXPECT_GT(sum.overrun_share(), kMaxOverrunShare);
}

TEST(PacedAccelerator, AFreeRunningOneCountsNoOverruns) {
  const auto device = make_device("");
  const StreamId stream = device->create_stream();
  const auto memory = take(*device, MemoryKind::kDevice, 4 * kMiB);
  device->launch(stream, CopyOp{memory->data(), memory->data() + 2 * kMiB, 2 * kMiB});
  device->synchronize(device->record(stream));
  EXPECT_EQ(device->statistics().overrun_share(), 0.0);
}

TEST(PacedAccelerator, StreamsOfOneDirectionShareTheLink) {
  const auto device = make_device("link-gbps=1");
  const StreamId hops = device->create_stream(StreamKind::kDeviceToHost);
  const StreamId swap = device->create_stream(StreamKind::kSwap);
  const auto own = take(*device, MemoryKind::kDevice, 10'000'000);
  const auto host = take(*device, MemoryKind::kHostPinned, 10'000'000);
  const SteadyClock clock;
  const Nanos begin = clock.now();
  device->launch(hops, CopyOp{host->data(), own->data(), 5'000'000});
  device->launch(swap, CopyOp{host->data() + 5'000'000, own->data() + 5'000'000, 5'000'000});
  const EventId first = device->record(hops);
  const EventId second = device->record(swap);
  device->synchronize(first);
  device->synchronize(second);
  EXPECT_GE(clock.now() - begin, std::chrono::milliseconds(10));
  EXPECT_EQ(device->statistics().device_to_host_bytes, 10'000'000);
}

// A sequence's blocks move without an event between them. Rows of a hop need not wait for all.
TEST(PacedAccelerator, ACopyGoesBetweenTheCopiesOfAnotherStream) {
  const auto device = make_device("pace=h200,link-gbps=0.04");  // 26 ms a MiB
  const auto memory = take(*device, MemoryKind::kDevice, kMiB);
  const auto host = take(*device, MemoryKind::kHostPinned, 2 * kMiB);
  const StreamId blocks = device->create_stream(StreamKind::kSwap);
  const StreamId rows = device->create_stream(StreamKind::kDeviceToHost);
  for (int i = 0; i < 20; ++i) {
    device->launch(blocks, CopyOp{host->data(), memory->data(), kMiB});
  }
  const EventId blocks_end = device->record(blocks);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // they are under way
  device->launch(rows, CopyOp{host->data() + kMiB, memory->data(), 4096});
  device->synchronize(device->record(rows));
  EXPECT_FALSE(device->query(blocks_end));
  device->synchronize(blocks_end);
}

TEST(PacedAccelerator, AHollowOneTakesItsTimeWithoutWeightsAndLeavesFiniteNumbers) {
  const auto device = make_device("pace=h200,hollow,slowdown=50");
  const StreamId stream = device->create_stream();
  const WeightMatrix absent = device->formats().matrix({}, 4096, 4096);
  const auto memory = take(*device, MemoryKind::kDevice, 4 * kMiB);
  float* y = floats(*memory) + 100'000;
  const GemmOp product{
      .x = memory->data(), .x_stride = 4096, .rows = 8, .w = absent, .y = y, .y_stride = 4096};
  std::fill_n(y, 8 * 4096, NAN);
  const Nanos modelled = op_time(*find_profile("h200"), product) * 50;
  const SteadyClock clock;
  const Nanos begin = clock.now();
  for (int i = 0; i < 10; ++i) {
    device->launch(stream, product);
  }
  device->synchronize(device->record(stream));
  EXPECT_GE(clock.now() - begin, modelled * 10);
  for (int64_t i = 0; i < 8 * 4096; ++i) {
    ASSERT_TRUE(std::isfinite(y[i]));
  }
}

TEST(PacedAccelerator, ACopyOfAHollowOneIsReal) {
  const auto device = make_device("pace=h200,hollow");
  const StreamId stream = device->create_stream(StreamKind::kHostToDevice);
  const auto own = take(*device, MemoryKind::kDevice, 4000);
  const auto host = take(*device, MemoryKind::kHostPinned, 4000);
  std::fill_n(floats(*host), 1000, 2.5F);
  device->launch(stream, CopyOp{own->data(), host->data(), 4000});
  device->synchronize(device->record(stream));
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(floats(*own)[i], 2.5F);
  }
}

TEST(PacedAcceleratorDeathTest, WeightsMayBeAbsentOnlyInAHollowOne) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto launch = [] {
    const auto device = make_device("pace=h200");
    const auto memory = take(*device, MemoryKind::kDevice, 4 * kMiB);
    device->launch(device->create_stream(), GemmOp{.x = memory->data(),
                                                   .x_stride = 32,
                                                   .rows = 1,
                                                   .w = device->formats().matrix({}, 32, 32),
                                                   .y = floats(*memory),
                                                   .y_stride = 32});
  };
  EXPECT_DEATH(launch(), "gemm w: .* do not lie in device memory");
}

}  // namespace
}  // namespace tandem::device
