#include "device/cuda/pinned_memory.h"

#include <gmock/gmock.h>

#include <cstring>

#include "device/cpu/machine.h"
#include "device/cuda/cuda_device.h"
#include "support/sizes.h"

namespace tandem::device::cuda {
namespace {

using cuda_on_host::GpuFault;

class Pinned : public testing::Test {
 protected:
  ~Pinned() override {
    cuda_on_host::pretend({});
    cuda_on_host::mend();
  }
  // In this test; a GPU that failed in a test before it left its own.
  [[nodiscard]] int64_t registered_bytes() const {
    return cuda_on_host::registered_bytes() - before_;
  }

 private:
  const int64_t before_ = cuda_on_host::registered_bytes();
};

TEST_F(Pinned, LargePiecesAreMadeHereAndRegistered) {
  for (const int64_t bytes : {PinnedMemory::kLargeBytes, PinnedMemory::kLargeBytes + 12345}) {
    PinnedMemory memory;
    ASSERT_EQ(memory.take(0, bytes), cudaSuccess);
    EXPECT_TRUE(memory.is_zeroed());
    EXPECT_EQ(registered_bytes(), bytes);
    for (int64_t i = 0; i < bytes; i += 65537) {
      ASSERT_EQ(memory.begin()[i], std::byte{0});
      memory.begin()[i] = std::byte{1};
    }
    EXPECT_EQ(memory.end(), cudaSuccess);
    EXPECT_EQ(registered_bytes(), 0);
  }
}

TEST_F(Pinned, SmallPiecesAndGpusWithOtherAddressesAreLeftToCuda) {
  PinnedMemory small;
  ASSERT_EQ(small.take(0, PinnedMemory::kLargeBytes - 1), cudaSuccess);
  EXPECT_FALSE(small.is_zeroed());
  cuda_on_host::pretend({.reaches_registered = false});
  PinnedMemory large;
  ASSERT_EQ(large.take(0, PinnedMemory::kLargeBytes), cudaSuccess);
  EXPECT_FALSE(large.is_zeroed());
  EXPECT_EQ(registered_bytes(), 0);
  EXPECT_EQ(small.end(), cudaSuccess);
  EXPECT_EQ(large.end(), cudaSuccess);
}

TEST_F(Pinned, MemoryThatCannotBeRegisteredIsAskedOfCuda) {
  cuda_on_host::fail({.in = GpuFault::In::kRegister});
  PinnedMemory memory;
  ASSERT_EQ(memory.take(0, PinnedMemory::kLargeBytes), cudaSuccess);
  EXPECT_FALSE(memory.is_zeroed());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(memory.end(), cudaSuccess);
}

TEST_F(Pinned, MoreThanTheMachineHasIsRefused) {
  PinnedMemory memory;
  for (const int64_t bytes : {machine_memory().free_bytes + 1024 * kMiB, int64_t{1} << 50}) {
    EXPECT_EQ(memory.take(0, bytes), cudaErrorMemoryAllocation);
  }
  EXPECT_EQ(memory.end(), cudaSuccess);
}

// A new piece is all zeros, also if an earlier piece left other bytes in its place.
TEST_F(Pinned, PiecesOfATierAreZeros) {
  auto device = std::move(make_cuda_device({.accelerator = AcceleratorSpec{.backend = "cuda"},
                                            .device_memory_bytes = 16 * kMiB,
                                            .host_memory_bytes = PinnedMemory::kLargeBytes}))
                    .value();
  EXPECT_GE(registered_bytes(), PinnedMemory::kLargeBytes);
  for (const int64_t bytes : {3 * kMiB, 5 * kMiB, kMiB}) {
    auto first = std::move(device->allocate(MemoryKind::kHostPinned, bytes)).value();
    auto second = std::move(device->allocate(MemoryKind::kHostPinned, 2 * kMiB)).value();
    for (const Memory* memory : {first.get(), second.get()}) {
      for (int64_t i = 0; i < memory->bytes(); ++i) {
        ASSERT_EQ(memory->data()[i], std::byte{0});
      }
      std::memset(memory->data(), 0xff, static_cast<size_t>(memory->bytes()));
    }
  }
}

}  // namespace
}  // namespace tandem::device::cuda
