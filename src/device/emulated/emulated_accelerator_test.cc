#include "device/emulated/emulated_accelerator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "device/cpu/machine.h"
#include "support/sizes.h"

namespace tandem::device {
namespace {

std::unique_ptr<EmulatedAccelerator> make_device() {
  auto device = make_emulated_accelerator(
      {.spec = {}, .device_memory_bytes = 64 * kMiB, .host_memory_bytes = 32 * kMiB});
  CHECK(device.ok(), "{}", device.error().message);
  return std::move(device).value();
}

// A piece of memory of either kind, seen as numbers.
struct HostNumbers {
  std::unique_ptr<Memory> memory;
  int32_t* data = nullptr;
  int64_t count = 0;

  [[nodiscard]] std::vector<int32_t> values() const { return {data, data + count}; }
};

HostNumbers numbers_in(Device& device, MemoryKind kind, int64_t count) {
  auto memory = device.allocate(kind, count * static_cast<int64_t>(sizeof(int32_t)));
  CHECK(memory.ok(), "{}", memory.error().message);
  HostNumbers numbers{std::move(memory).value(), nullptr, count};
  numbers.data = reinterpret_cast<int32_t*>(numbers.memory->data());
  return numbers;
}

HostNumbers counted(Device& device, MemoryKind kind, int64_t count, int32_t first) {
  HostNumbers numbers = numbers_in(device, kind, count);
  std::iota(numbers.data, numbers.data + count, first);
  return numbers;
}

CopyOp copy_of(const HostNumbers& target, const HostNumbers& source) {
  return {target.data, source.data, source.count * static_cast<int64_t>(sizeof(int32_t))};
}

TEST(EmulatedAccelerator, SaysWhatItIsAndLeavesTheHostCoresOfItsOwn) {
  const auto device = make_device();
  const AcceleratorCaps& caps = device->caps();
  const HostCaps& host = device->host();
  EXPECT_NE(caps.name.find("emulated"), std::string::npos);
  EXPECT_EQ(caps.memory_bytes, 64 * kMiB);
  EXPECT_EQ(host.pinned_bytes, 32 * kMiB);
  EXPECT_EQ(caps.threads, static_cast<int32_t>(caps.cpus.size()));
  ASSERT_FALSE(host.cpus.empty());
  if (allowed_cpus().size() > 1) {
    for (const int32_t cpu : host.cpus) {
      EXPECT_EQ(std::count(caps.cpus.begin(), caps.cpus.end(), cpu), 0);
    }
  }
}

TEST(EmulatedAccelerator, EachTierHasItsOwnBound) {
  const auto device = make_device();
  auto all = device->allocate(MemoryKind::kDevice, 64 * kMiB);
  ASSERT_TRUE(all.ok());
  const auto refused = device->allocate(MemoryKind::kDevice, 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("--device-memory"), std::string::npos);
  EXPECT_TRUE(device->allocate(MemoryKind::kHostPinned, 32 * kMiB).ok());
  const auto host = device->allocate(MemoryKind::kHostPinned, 32 * kMiB + 1);
  ASSERT_FALSE(host.ok());
  EXPECT_NE(host.error().message.find("--host-memory"), std::string::npos);
  all.value().reset();
  EXPECT_TRUE(device->allocate(MemoryKind::kDevice, 64 * kMiB).ok());
}

TEST(EmulatedAccelerator, OptionsThatThisMachineCannotGiveAreRefused) {
  EmulatedAcceleratorOptions options{
      .spec = {}, .device_memory_bytes = kMiB, .host_memory_bytes = kMiB};
  EXPECT_TRUE(make_emulated_accelerator(options).ok());
  options.spec.cores = 1024;
  EXPECT_FALSE(make_emulated_accelerator(options).ok());
  options.spec.cores = 0;
  options.host_memory_bytes = int64_t{1} << 50;
  const auto huge = make_emulated_accelerator(options);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().code, ErrorCode::kResourceExhausted);
  options.host_memory_bytes = 0;
  EXPECT_FALSE(make_emulated_accelerator(options).ok());
}

TEST(EmulatedAccelerator, RowsGoToTheHostAndBackOnStreamsOfTheirOwn) {
  const auto device = make_device();
  const StreamId compute = device->create_stream();
  const StreamId out = device->create_stream(StreamKind::kDeviceToHost);
  const StreamId back = device->create_stream(StreamKind::kHostToDevice);
  const StreamId swap = device->create_stream(StreamKind::kSwap);
  constexpr int64_t kCount = 50'000;
  constexpr int64_t kBytes = kCount * 4;
  for (int32_t round = 0; round < 10; ++round) {
    const HostNumbers source = counted(*device, MemoryKind::kDevice, kCount, round);
    const HostNumbers middle = numbers_in(*device, MemoryKind::kDevice, kCount);
    const HostNumbers outbox = numbers_in(*device, MemoryKind::kHostPinned, kCount);
    const HostNumbers returned = numbers_in(*device, MemoryKind::kDevice, kCount);
    const HostNumbers swapped = numbers_in(*device, MemoryKind::kHostPinned, kCount);
    device->launch(compute, copy_of(middle, source));
    const EventId computed = device->record(compute);
    device->wait(out, computed);
    device->launch(out, copy_of(outbox, middle));
    device->wait(back, device->record(out));
    device->launch(back, copy_of(returned, outbox));
    const EventId ready = device->record(back);
    device->wait(swap, ready);
    device->launch(swap, copy_of(swapped, returned));
    device->synchronize(device->record(swap));
    device->wait(compute, ready);  // complete, so the compute stream does not stand still
    ASSERT_EQ(swapped.values(), source.values());
  }
  const DeviceStatistics sum = device->statistics();
  EXPECT_EQ(sum.device_to_device_bytes, 10 * kBytes);
  EXPECT_EQ(sum.device_to_host_bytes, 20 * kBytes);
  EXPECT_EQ(sum.host_to_device_bytes, 10 * kBytes);
  EXPECT_EQ(sum.pageable_bytes, 0);
  ASSERT_EQ(sum.streams.size(), 4U);
  EXPECT_EQ(sum.streams[3].kind, StreamKind::kSwap);
  EXPECT_EQ(sum.streams[0].ops, 10);
  EXPECT_GT(sum.streams[0].busy, Nanos{0});
  EXPECT_EQ(sum.ops(), 40);
}

TEST(EmulatedAccelerator, AModelIsLoadedFromMemoryThatTheDeviceDoesNotOwn) {
  const auto device = make_device();
  const StreamId stream = device->create_stream();
  const HostNumbers target = numbers_in(*device, MemoryKind::kDevice, 1000);
  std::vector<int32_t> source(1000);
  std::iota(source.begin(), source.end(), 5);
  device->launch(stream, CopyOp{target.data, source.data(), 4000});
  device->synchronize(device->record(stream));
  EXPECT_EQ(target.values(), source);
  EXPECT_EQ(device->statistics().pageable_bytes, 4000);
}

// Holds the first event's stream in its listener, so that later events cannot complete.
class Gate {
 public:
  void operator()() {
    while (!open_.load()) {
      open_.wait(false);
    }
  }
  void open() {
    open_.store(true);
    open_.notify_all();
  }

 private:
  std::atomic<bool> open_{false};
};

TEST(EmulatedAccelerator, AComputeStreamMayWaitForItselfAndForWhatIsAllowed) {
  Gate gate;  // outlives the device: the copies' thread may still be in the listener when `end` is
              // there
  const auto device = make_device();
  const StreamId compute = device->create_stream();
  const StreamId copies = device->create_stream(StreamKind::kHostToDevice);
  device->set_listener([&] { gate(); });
  device->wait(compute, device->record(compute));
  device->record(copies);
  const HostNumbers source = counted(*device, MemoryKind::kHostPinned, 100, 3);
  const HostNumbers middle = numbers_in(*device, MemoryKind::kDevice, 100);
  const HostNumbers target = numbers_in(*device, MemoryKind::kDevice, 100);
  device->launch(copies, copy_of(middle, source));
  const EventId held = device->record(copies);
  EXPECT_FALSE(device->query(held));
  device->allow_wait(held);
  device->wait(compute, held);
  device->launch(compute, copy_of(target, middle));
  const EventId end = device->record(compute);
  EXPECT_FALSE(device->query(end));
  gate.open();
  device->synchronize(end);
  EXPECT_EQ(target.values(), source.values());
}

TEST(EmulatedAccelerator, ATimelineShowsTheOpsOfEachStream) {
  observe::Timeline timeline(16);
  for (const char* text : {"", "pace=h200"}) {
    auto made = make_emulated_accelerator({.spec = *parse_emulation_spec(text),
                                           .device_memory_bytes = 64 * kMiB,
                                           .host_memory_bytes = 32 * kMiB,
                                           .timeline = &timeline});
    ASSERT_TRUE(made.ok());
    Device& device = **made;
    const StreamId compute = device.create_stream();
    const StreamId out = device.create_stream(StreamKind::kDeviceToHost);
    const HostNumbers source = counted(device, MemoryKind::kDevice, 50'000, 1);
    const HostNumbers ring = numbers_in(device, MemoryKind::kDevice, 50'000);
    const HostNumbers outbox = numbers_in(device, MemoryKind::kHostPinned, 50'000);
    device.launch(compute, copy_of(ring, source));
    device.launch(compute, copy_of(ring, source));
    device.wait(out, device.record(compute));
    device.launch(out, copy_of(outbox, ring));
    device.synchronize(device.record(out));
  }
  const std::string trace = timeline.chrome_trace();
  EXPECT_NE(trace.find("0: compute"), std::string::npos);
  EXPECT_NE(trace.find("1: to host"), std::string::npos);
  EXPECT_NE(trace.find(R"("args":{"bytes":200000})"), std::string::npos);
  size_t copies = 0;
  for (size_t at = trace.find("\"copy\""); at != std::string::npos;
       at = trace.find("\"copy\"", at + 1)) {
    ++copies;
  }
  EXPECT_EQ(copies, 6U);
}

class EmulatedAcceleratorDeathTest : public testing::Test {
 protected:
  EmulatedAcceleratorDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(EmulatedAcceleratorDeathTest, AComputeStreamThatWouldWaitForAnotherStops) {
  const auto wait = [] {
    Gate gate;
    const auto device = make_device();
    const StreamId compute = device->create_stream();
    const StreamId copies = device->create_stream(StreamKind::kHostToDevice);
    device->set_listener([&] { gate(); });
    device->record(copies);
    device->wait(compute, device->record(copies));
  };
  EXPECT_DEATH(wait(), "compute stream 0 would wait for stream 1");
}

TEST_F(EmulatedAcceleratorDeathTest, AnOpOnHostMemoryStops) {
  const auto gather_from_host = [] {
    const auto device = make_device();
    const HostNumbers host = numbers_in(*device, MemoryKind::kHostPinned, 64);
    const HostNumbers own = numbers_in(*device, MemoryKind::kDevice, 64);
    device->launch(device->create_stream(),
                   RowGatherOp{.x = reinterpret_cast<const float*>(host.data),
                               .stride = 16,
                               .rows = own.data,
                               .count = 1,
                               .y = reinterpret_cast<float*>(own.data)});
  };
  EXPECT_DEATH(gather_from_host(), "row_gather x: 64 bytes at .* do not lie in device memory");
}

TEST_F(EmulatedAcceleratorDeathTest, ACopyAgainstItsStreamStops) {
  const auto wrong_way = [] {
    const auto device = make_device();
    const HostNumbers host = numbers_in(*device, MemoryKind::kHostPinned, 64);
    const HostNumbers own = numbers_in(*device, MemoryKind::kDevice, 64);
    device->launch(device->create_stream(StreamKind::kDeviceToHost), copy_of(own, host));
  };
  EXPECT_DEATH(wrong_way(), "wrong way");
}

TEST_F(EmulatedAcceleratorDeathTest, ACopyToOrFromNowhereStops) {
  const auto to_nowhere = [] {
    const auto device = make_device();
    const HostNumbers own = numbers_in(*device, MemoryKind::kDevice, 64);
    std::vector<int32_t> outside(64);
    device->launch(device->create_stream(), CopyOp{outside.data(), own.data, 256});
  };
  EXPECT_DEATH(to_nowhere(), "lies in no tier");
  const auto pageable_to_host = [] {
    const auto device = make_device();
    const HostNumbers host = numbers_in(*device, MemoryKind::kHostPinned, 64);
    std::vector<int32_t> outside(64);
    device->launch(device->create_stream(), CopyOp{host.data, outside.data(), 256});
  };
  EXPECT_DEATH(pageable_to_host(), "lies in no tier");
}

TEST_F(EmulatedAcceleratorDeathTest, AnOpOnAStreamOfCopiesStops) {
  const auto gather = [] {
    const auto device = make_device();
    device->launch(device->create_stream(StreamKind::kSwap), RowGatherOp{});
  };
  EXPECT_DEATH(gather(), "on a stream of copies");
}

#if defined(__SANITIZE_THREAD__)
enum class PlantedBug { kNone, kForgottenWait };

// A row's way out: computed on the compute stream, copied on the stream to the host. Often, with
// the bug as without: when a stream that has nothing left goes to sleep before the next launch,
// that launch orders the two by chance, and on a busy machine this can happen several times in a
// row.
void send_rows_out(std::string_view text, PlantedBug bug) {
  const auto spec = parse_emulation_spec(text);
  CHECK(spec.ok(), "{}", spec.error().message);
  auto made = make_emulated_accelerator(
      {.spec = *spec, .device_memory_bytes = 64 * kMiB, .host_memory_bytes = 32 * kMiB});
  CHECK(made.ok(), "{}", made.error().message);
  const auto device = std::move(made).value();
  const StreamId compute = device->create_stream();
  const StreamId out = device->create_stream(StreamKind::kDeviceToHost);
  const HostNumbers source = counted(*device, MemoryKind::kDevice, 20'000, 1);
  const HostNumbers ring = numbers_in(*device, MemoryKind::kDevice, 20'000);
  const HostNumbers outbox = numbers_in(*device, MemoryKind::kHostPinned, 20'000);
  constexpr int kRounds = 200;
  for (int i = 0; i < kRounds; ++i) {
    device->launch(compute, copy_of(ring, source));
    const EventId computed = device->record(compute);
    if (bug == PlantedBug::kNone) {
      device->wait(out, computed);
    }
    device->launch(out, copy_of(outbox, ring));
    const EventId copied = device->record(out);
    if (bug == PlantedBug::kNone) {
      device->synchronize(copied);  // the ring's rows are free again
    }
  }
  device->synchronize(device->record(compute));
  device->synchronize(device->record(out));
  std::exit(0);  // NOLINT(concurrency-mt-unsafe): the detector sets the exit code
}

TEST_F(EmulatedAcceleratorDeathTest, ARaceDetectorSeesAWaitForgottenBetweenComputeAndCopy) {
  for (const char* text : {"", "link-gbps=50", "pace=h200"}) {
    EXPECT_EXIT(
        send_rows_out(text, PlantedBug::kForgottenWait), [](int status) { return status != 0; },
        "data race")
        << text;
    EXPECT_EXIT(send_rows_out(text, PlantedBug::kNone), testing::ExitedWithCode(0), "") << text;
  }
}
#endif

}  // namespace
}  // namespace tandem::device
