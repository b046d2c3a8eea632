// The threads of a block over the host's CUDA: they meet as CUDA says, and kernels that break its
// rules are found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "device/cuda/kernels/cooperation.cuh"

namespace cuda_on_host {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

void run(unsigned blocks, unsigned threads, size_t shared_bytes,
         const std::function<void(void*)>& body) {
  run_blocks(
      {.kernel = "kernel", .grid = dim3(blocks), .threads = threads, .shared_bytes = shared_bytes},
      body);
}

TEST(Simt, EveryThreadOfEveryBlockRunsOnce) {
  std::vector<int> runs(size_t{2} * 3 * 4 * 64);
  run_blocks({.kernel = "kernel", .grid = dim3(2, 3, 4), .threads = 64}, [&](void* /*shared*/) {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    ++runs[block * blockDim.x + threadIdx.x];
  });
  EXPECT_EQ(runs, std::vector<int>(runs.size(), 1));
}

TEST(Simt, SumsOfABlockAreTheSumsOfALoop) {
  struct Shared {
    int sums[32];
  };
  for (const unsigned threads : {32U, 96U, 1024U}) {
    std::vector<int> upto(threads);
    std::vector<int> twice(threads);
    run(3, threads, sizeof(Shared), [&](void* memory) {
      Shared& shared = *static_cast<Shared*>(memory);
      const int own = static_cast<int>(threadIdx.x * threadIdx.x % 19);
      const int sum = tandem::device::cuda::block_sum(own, shared.sums);
      upto[threadIdx.x] = tandem::device::cuda::block_inclusive_sum(own, shared.sums);
      twice[threadIdx.x] = tandem::device::cuda::block_sum(sum, shared.sums);
    });
    int sum = 0;
    for (unsigned i = 0; i < threads; ++i) {
      sum += static_cast<int>(i * i % 19);
      EXPECT_EQ(upto[i], sum);
    }
    EXPECT_EQ(twice, std::vector<int>(threads, sum * static_cast<int>(threads)));
  }
}

TEST(Simt, SharedMemoryBeginsWithoutNumbers) {
  int broken = 0;
  run(2, 32, 4 * sizeof(float), [&](void* memory) {
    if (threadIdx.x == 0) {
      auto* const floats = static_cast<float*>(memory);
      broken += std::isnan(floats[3]) ? 1 : 0;
      floats[3] = 1.0F;
    }
  });
  EXPECT_EQ(broken, 2);
}

TEST(Simt, AMissingBarrierShows) {
  int wrong = 0;
  run(2, 64, 64 * sizeof(int), [&](void* memory) {
    auto* const numbers = static_cast<int*>(memory);
    numbers[threadIdx.x] = static_cast<int>(threadIdx.x);
    wrong += numbers[threadIdx.x ^ 32U] != static_cast<int>(threadIdx.x ^ 32U) ? 1 : 0;
  });
  EXPECT_EQ(wrong, 64);
}

TEST(Simt, ThreadsThatDoNotMeetAreNamed) {
  const auto differ = [](void* /*shared*/) {
    if (threadIdx.x == 40) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  };
  EXPECT_THAT([&] { run(1, 64, 0, differ); },
              ThrowsMessage<BrokenRule>(HasSubstr("different barriers: thread 0")));
  const auto ends = [](void* /*shared*/) {
    if (threadIdx.x < 63) {
      __syncthreads();
    }
  };
  EXPECT_THAT([&] { run(1, 64, 0, ends); },
              ThrowsMessage<BrokenRule>(HasSubstr("thread 63 has ended")));
  const auto parts = [](void* /*shared*/) {
    if (threadIdx.x != 33) {
      __shfl_xor_sync(0xffffffffU, 1, 1);
    }
  };
  EXPECT_THAT([&] { run(1, 64, 0, parts); },
              ThrowsMessage<BrokenRule>(HasSubstr("do not meet in one exchange")));
  const auto half = [](void* /*shared*/) { __shfl_xor_sync(0xffffU, 1, 1); };
  EXPECT_THAT([&] { run(1, 32, 0, half); }, ThrowsMessage<BrokenRule>(HasSubstr("part of a warp")));
  EXPECT_THAT([&] { run(1, 33, 0, half); }, ThrowsMessage<BrokenRule>(HasSubstr("33 threads")));
  run(1, 64, 0, [](void* /*shared*/) { __syncthreads(); });  // another run is not disturbed
}

}  // namespace
}  // namespace cuda_on_host
