#include "device/cpu/cpu_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "base/element_type.h"
#include "device/cpu/host_formats.h"
#include "device/cpu/machine.h"
#include "device/cpu/placement.h"

namespace tandem::device {
namespace {

// Counts what would be asked of the kernel.
class Recorder final : public PagePlacer {
 public:
  [[nodiscard]] bool has_policy_of_its_own() const override { return false; }
  [[nodiscard]] bool prefer(std::byte* /*data*/, int64_t /*bytes*/,
                            int32_t /*node*/) const override {
    ++calls;
    return true;
  }
  void touch(std::byte* /*data*/, int64_t /*bytes*/,
             std::span<const int32_t> /*cpus*/) const override {
    ++calls;
  }
  mutable int32_t calls = 0;
};

std::unique_ptr<Device> make_device(int32_t threads) {
  auto device = make_cpu_device({.threads = threads});
  CHECK(device.ok(), "{}", device.error().message);
  return std::move(device).value();
}

CopyOp copy_of(std::vector<int32_t>& target, const std::vector<int32_t>& source) {
  return {target.data(), source.data(), static_cast<int64_t>(source.size() * sizeof(int32_t))};
}

std::vector<int32_t> numbers(size_t count, int32_t first) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST(CpuDevice, SaysWhatItIs) {
  const auto device = make_device(3);
  EXPECT_EQ(device->caps().threads, 3);
  EXPECT_NE(device->caps().name.find("3 threads"), std::string::npos);
  EXPECT_GT(device->caps().memory_bytes, 0);
  EXPECT_GE(make_device(0)->caps().threads, 1);
}

TEST(CpuDevice, ThreadCountsThatMakeNoSenseAreRefused) {
  for (const int32_t threads : {-1, 100000}) {
    const auto device = make_cpu_device({.threads = threads});
    ASSERT_FALSE(device.ok());
    EXPECT_EQ(device.error().param, "threads");
    EXPECT_NE(device.error().message.find(std::to_string(threads)), std::string::npos);
  }
}

TEST(CpuDevice, AStreamRunsItsOpsInOrder) {
  const auto device = make_device(2);
  const StreamId stream = device->create_stream();
  std::vector<std::vector<int32_t>> stages(6, std::vector<int32_t>(200'000, 0));
  stages[0] = numbers(200'000, 7);
  for (size_t i = 1; i < stages.size(); ++i) {
    device->launch(stream, copy_of(stages[i], stages[i - 1]));
  }
  device->synchronize(device->record(stream));
  EXPECT_EQ(stages.back(), stages.front());
}

TEST(CpuDevice, ThousandsOfOpsQueueUpWithoutBlockingAndAllRun) {
  const auto device = make_device(2);
  const StreamId stream = device->create_stream();
  const std::vector<int32_t> source = numbers(5000, 0);
  std::vector<int32_t> target(source.size(), -1);
  for (size_t i = 0; i < source.size(); ++i) {
    device->launch(stream, CopyOp{&target[i], &source[i], sizeof(int32_t)});
  }
  device->synchronize(device->record(stream));
  EXPECT_EQ(target, source);
}

TEST(CpuDevice, AStreamWaitsForAnotherStreamsEvent) {
  const auto device = make_device(2);
  const StreamId first = device->create_stream();
  const StreamId second = device->create_stream();
  std::vector<int32_t> middle(300'000, 0);
  std::vector<int32_t> end(300'000, 0);
  for (int32_t round = 1; round <= 20; ++round) {
    const std::vector<int32_t> source = numbers(300'000, round);
    device->launch(first, copy_of(middle, source));
    device->wait(second, device->record(first));
    device->launch(second, copy_of(end, middle));
    const EventId done = device->record(second);
    device->wait(first, done);
    device->synchronize(done);
    ASSERT_EQ(end, source);
  }
}

TEST(CpuDevice, EventsOfAStreamCompleteInOrder) {
  const auto device = make_device(2);
  const StreamId stream = device->create_stream();
  const std::vector<int32_t> source = numbers(100'000, 3);
  std::vector<int32_t> target(source.size());
  std::vector<EventId> events;
  for (int i = 0; i < 50; ++i) {
    device->launch(stream, copy_of(target, source));
    events.push_back(device->record(stream));
  }
  EXPECT_TRUE(std::is_sorted(events.begin(), events.end()));
  device->synchronize(events[25]);
  for (size_t i = 0; i <= 25; ++i) {
    EXPECT_TRUE(device->query(events[i]));
  }
  device->synchronize(events.back());
  EXPECT_TRUE(device->query(events.back()));
}

TEST(CpuDevice, TheListenerIsCalledOnceForEachEventAndIsDoneWhenSynchronizeReturns) {
  const auto device = make_device(2);
  int32_t calls = 0;  // not atomic: synchronize must order it
  device->set_listener([&] { ++calls; });
  const StreamId stream = device->create_stream();
  for (int32_t i = 1; i <= 100; ++i) {
    device->synchronize(device->record(stream));
    EXPECT_EQ(calls, i);
  }
  device->set_listener({});
  device->synchronize(device->record(stream));
  EXPECT_EQ(calls, 100);
}

TEST(CpuDevice, ACompletedEventMakesItsEffectsVisibleToWhoeverAsks) {
  const auto device = make_device(2);
  const StreamId stream = device->create_stream();
  const std::vector<int32_t> source = numbers(1000, 11);
  std::vector<int32_t> target(source.size());
  device->launch(stream, copy_of(target, source));
  const EventId event = device->record(stream);
  std::thread other([&] {
    while (!device->query(event)) {
      std::this_thread::yield();
    }
    EXPECT_EQ(target, source);
  });
  other.join();
}

TEST(CpuDevice, QueuedWorkIsFinishedBeforeTheDeviceEnds) {
  const std::vector<int32_t> source = numbers(500'000, 5);
  std::vector<int32_t> middle(source.size());
  std::vector<int32_t> late(source.size());
  std::vector<int32_t> unannounced(10);
  std::atomic<int32_t> calls{0};  // two streams call
  {
    const auto device = make_device(2);
    device->set_listener([&] { ++calls; });
    const StreamId first = device->create_stream();
    const StreamId second = device->create_stream();
    for (int i = 0; i < 10; ++i) {
      device->launch(second, copy_of(middle, source));
    }
    // The first stream waits for the second, which is destroyed after it.
    device->wait(first, device->record(second));
    device->launch(first, copy_of(late, middle));
    device->record(first);
    device->launch(second, CopyOp{unannounced.data(), source.data(), 40});
  }
  EXPECT_EQ(late, source);
  EXPECT_EQ(unannounced, numbers(10, 5));
  EXPECT_EQ(calls, 2);
}

TEST(CpuDevice, MemoryIsAlignedZeroedAndGivenBack) {
  const auto device = make_device(1);
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{5} << 20}) {
    auto memory = device->allocate(MemoryKind::kDevice, bytes);
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ((*memory)->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*memory)->data()) % (2U << 20), 0U);
    for (int64_t i = 0; i < bytes; i += 509) {
      ASSERT_EQ((*memory)->data()[i], std::byte{0});
    }
    std::memset((*memory)->data(), 0xff, static_cast<size_t>(bytes));
  }
}

TEST(CpuDevice, AskingForMoreMemoryThanThereIsNamesTheNumbers) {
  const auto device = make_device(1);
  for (const int64_t bytes : {device->caps().memory_bytes * 2, int64_t{1} << 62}) {
    const auto memory = device->allocate(MemoryKind::kDevice, bytes);
    ASSERT_FALSE(memory.ok());
    EXPECT_EQ(memory.error().code, ErrorCode::kResourceExhausted);
    EXPECT_NE(memory.error().message.find("left"), std::string::npos);
  }
  EXPECT_FALSE(device->allocate(MemoryKind::kHostPinned, -1).ok());
}

TEST(CpuDevice, MemoryThatIsPromisedButNotTouchedCountsUntilItIsGivenBack) {
  const auto device = make_device(1);
  const int64_t most = device->caps().free_memory_bytes / 10 * 6;
  auto first = device->allocate(MemoryKind::kDevice, most);
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(device->allocate(MemoryKind::kDevice, most).ok());
  first.value().reset();
  EXPECT_TRUE(device->allocate(MemoryKind::kDevice, most).ok());
}

// A matrix product large enough to be divided.
struct Product {
  int64_t rows = 0;
  int64_t n = 0;
  int64_t k = 0;
  WeightFormat format{.type = ElementType::kF32};
};

std::vector<float> multiply(Device& device, const Product& shape) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<float> w(static_cast<size_t>(shape.n * shape.k));
  std::vector<float> x(static_cast<size_t>(shape.rows * shape.k));
  std::generate(w.begin(), w.end(), [&] { return uniform(random); });
  std::generate(x.begin(), x.end(), [&] { return uniform(random); });
  std::vector<float> y(static_cast<size_t>(shape.rows * shape.n));
  std::vector<BFloat16> narrow(x.size());
  std::ranges::transform(x, narrow.begin(), f32_to_bf16);
  const bool is_narrow = shape.format.type == ElementType::kBF16;
  WeightMatrix weights = device.formats().matrix(shape.format, shape.n, shape.k);
  auto memory = device.allocate(MemoryKind::kDevice, weights.stored_bytes);
  CHECK(memory.ok(), "{}", memory.error().message);
  weights.data = (*memory)->data();
  const StreamId stream = device.create_stream();
  device.launch(stream, UploadOp{.source = w.data(),
                                 .source_type = ElementType::kF32,
                                 .n = {shape.n, shape.n, shape.n},
                                 .k = {shape.k, shape.k, shape.k},
                                 .target = weights,
                                 .target_data = (*memory)->data()});
  const void* rows = is_narrow ? static_cast<const void*>(narrow.data()) : x.data();
  device.launch(stream, GemmOp{.x = rows,
                               .x_type = shape.format.type,
                               .x_stride = shape.k,
                               .rows = shape.rows,
                               .w = weights,
                               .y = y.data(),
                               .y_stride = shape.n});
  device.synchronize(device.record(stream));
  return y;
}

TEST(CpuDevice, TheNumberOfThreadsDoesNotChangeAProduct) {
  const Product shape{.rows = 5, .n = 1024, .k = 512};
  const std::vector<float> one = multiply(*make_device(1), shape);
  for (const int32_t threads : {2, 3, 5}) {
    EXPECT_EQ(multiply(*make_device(threads), shape), one) << threads << " threads";
  }
}

// Threads round or sum the rows together, before they multiply them.
TEST(CpuDevice, TheNumberOfThreadsDoesNotChangeAProductOfPreparedRows) {
  for (const Quantization quantization : {Quantization::kInt8, Quantization::kInt4}) {
    for (const Activations activations : {Activations::kInt8, Activations::kPlain}) {
      const Product shape{.rows = 101,
                          .n = 256,
                          .k = 1056,
                          .format = weight_format(ElementType::kBF16, quantization, activations)};
      const std::vector<float> alone = multiply(*make_device(1), shape);
      for (const int32_t threads : {2, 4}) {
        EXPECT_EQ(multiply(*make_device(threads), shape), alone) << threads << " threads";
      }
    }
  }
}

// This machine's CPUs as two made-up nodes, whose memory is that of the first real one.
Topology two_nodes() {
  const std::vector<int32_t> cpus = allowed_cpus();
  const std::vector<int32_t> last = {cpus.back()};
  const int64_t some = int64_t{1} << 30;
  return {{.id = 0, .cpus = {cpus.front()}, .cores = 1, .memory_bytes = some, .free_bytes = some},
          {.id = 0, .cpus = last, .cores = 1, .memory_bytes = some, .free_bytes = some}};
}

std::unique_ptr<Device> device_on_two_nodes(int32_t threads, Pinning pinning) {
  auto device = make_cpu_device({.threads = threads, .pinning = pinning, .topology = two_nodes()});
  CHECK(device.ok(), "{}", device.error().message);
  return std::move(device).value();
}

TEST(CpuDevice, NodesDoNotChangeAProduct) {
  const Product shape{.rows = 5, .n = 4096, .k = 512};
  const std::vector<float> one = multiply(*make_device(1), shape);
  for (const int32_t threads : {2, 3, 5}) {
    for (const Pinning pinning : {Pinning::kOff, Pinning::kOn}) {
      EXPECT_EQ(multiply(*device_on_two_nodes(threads, pinning), shape), one)
          << threads << " threads";
    }
  }
}

TEST(CpuDevice, SaysWhichNodesItComputesOn) {
  const auto device = device_on_two_nodes(3, Pinning::kAuto);
  const AcceleratorCaps& caps = device->caps();
  const HostCaps& host = device->host();
  EXPECT_EQ(caps.threads, 3);
  ASSERT_EQ(host.nodes.size(), 2U);
  EXPECT_EQ(host.nodes[0].threads, 2);
  EXPECT_EQ(host.nodes[1].cpus, std::vector<int32_t>{allowed_cpus().back()});
  EXPECT_EQ(host.near_free_bytes, std::min(int64_t{2} << 30, caps.free_memory_bytes));
  EXPECT_NE(caps.name.find("node"), std::string::npos) << caps.name;
}

TEST(CpuDevice, OneNodeOrNoneLookedAtIsNotSpokenOf) {
  Topology one = two_nodes();
  one.pop_back();
  for (const CpuDeviceOptions& options :
       {CpuDeviceOptions{.threads = 2, .topology = one},
        CpuDeviceOptions{
            .threads = 2, .numa = {.mode = NumaMode::kOff}, .topology = two_nodes()}}) {
    const auto device = make_cpu_device(options);
    ASSERT_TRUE(device.ok());
    EXPECT_TRUE((*device)->host().nodes.empty());
    EXPECT_EQ((*device)->host().near_free_bytes, 0);
    EXPECT_EQ((*device)->caps().name.find("node"), std::string::npos);
  }
}

TEST(CpuDevice, OneThreadForEachCoreUnlessToldOtherwise) {
  Topology siblings = two_nodes();
  siblings[0].cpus = allowed_cpus();
  siblings[0].cores = 1;
  siblings.pop_back();
  const auto device = make_cpu_device({.topology = siblings});
  ASSERT_TRUE(device.ok());
  EXPECT_EQ((*device)->caps().threads, 1);
}

TEST(CpuDevice, ANodeThatIsNotThereIsRefused) {
  const auto device =
      make_cpu_device({.numa = {.mode = NumaMode::kNodes, .nodes = {7}}, .topology = two_nodes()});
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().param, "numa");
  EXPECT_NE(device.error().message.find("node 7"), std::string::npos);
}

TEST(CpuDevice, ServerMemoryIsPlacedOnlyOnSeveralNodes) {
  Recorder recorder;
  for (const bool several : {false, true}) {
    Topology topology = two_nodes();
    if (!several) {
      topology.pop_back();
    }
    const auto device = make_cpu_device({.threads = 2, .topology = topology, .placer = &recorder});
    ASSERT_TRUE(device.ok());
    const WeightExtent matrix{.offset = 0, .matrix = host_formats().matrix({}, 2048, 4096)};
    const auto weights = (*device)->allocate({.bytes = int64_t{16} << 20,
                                              .purpose = MemoryPurpose::kWeights,
                                              .matrices = std::span(&matrix, 1)});
    const auto kv = (*device)->allocate(
        {.bytes = int64_t{16} << 20, .purpose = MemoryPurpose::kKv, .unit_bytes = 1 << 20});
    const auto other = (*device)->allocate(MemoryKind::kDevice, int64_t{16} << 20);
    ASSERT_TRUE(weights.ok() && kv.ok() && other.ok());
    EXPECT_EQ(recorder.calls, several ? 2 + 8 : 0);
  }
}

TEST(CpuDevice, SeveralStreamsShareThePool) {
  const auto device = make_device(3);
  const std::vector<int32_t> source = numbers(400'000, 1);
  std::vector<std::vector<int32_t>> targets(3, std::vector<int32_t>(source.size()));
  std::vector<EventId> events;
  for (auto& target : targets) {
    const StreamId stream = device->create_stream();
    for (int i = 0; i < 5; ++i) {
      device->launch(stream, copy_of(target, source));
    }
    events.push_back(device->record(stream));
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    device->synchronize(events[i]);
    EXPECT_EQ(targets[i], source);
  }
}

#if defined(__SANITIZE_THREAD__)
// Streams are ordered by events alone, so that the race detector finds the event that is missing.
TEST(CpuDeviceDeathTest, ARaceDetectorSeesAForgottenWait) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto forget_to_wait = [] {
    const auto device = make_device(2);
    const StreamId first = device->create_stream();
    const StreamId second = device->create_stream();
    const std::vector<int32_t> source = numbers(20'000, 1);
    std::vector<int32_t> middle(source.size());
    std::vector<int32_t> end(source.size());
    for (int i = 0; i < 5; ++i) {
      device->launch(first, copy_of(middle, source));
      device->launch(second, copy_of(end, middle));
    }
    const EventId first_done = device->record(first);
    const EventId second_done = device->record(second);
    device->synchronize(first_done);
    device->synchronize(second_done);
    std::exit(0);  // NOLINT(concurrency-mt-unsafe): the detector sets the exit code
  };
  EXPECT_EXIT(
      forget_to_wait(), [](int status) { return status != 0; }, "data race");
}
#endif

}  // namespace
}  // namespace tandem::device
