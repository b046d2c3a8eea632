// Runs kernels whose threads wait for each other: threads of a block are fibers of one thread of
// the machine, which runs each until it waits at a barrier or for its warp. Blocks run one after
// the other, the last of them first. The order of warps and lanes changes from barrier to barrier,
// so a missing barrier shows in results. The shared memory of a block begins as 0xff in all bytes.
//
// Not shown: blocks that run at the same time, weak order of memory, a race that gives the same
// result in both orders.
//
// Threads: any; each has fibers of its own, so two streams run blocks at the same time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

struct uint3 {
  unsigned x;
  unsigned y;
  unsigned z;
};
struct dim3 {
  unsigned x;
  unsigned y;
  unsigned z;
  constexpr dim3(unsigned own_x = 1, unsigned own_y = 1, unsigned own_z = 1)
      : x(own_x), y(own_y), z(own_z) {}
};

// Of the fiber that runs.
extern thread_local constinit uint3 threadIdx;
extern thread_local constinit uint3 blockIdx;
extern thread_local constinit dim3 blockDim;
extern thread_local constinit dim3 gridDim;

namespace cuda_on_host {

// Sanitizers do not know the fibers.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kRunsBlocks = false;
#elif defined(__has_feature)
inline constexpr bool kRunsBlocks =
    !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer);
#else
inline constexpr bool kRunsBlocks = true;
#endif

inline constexpr unsigned kLanes = 32;

// std::source_location, which clang 14 does not have.
struct SourceLine {
  const char* file = "";
  unsigned line = 0;
};

struct Blocks {
  std::string kernel;  // its name
  dim3 grid;
  unsigned threads = 1;  // of a block
  size_t shared_bytes = 0;
};

// A kernel broke a rule of CUDA; says which and where.
struct BrokenRule : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Calls body(shared memory) as every thread of every block. Throws BrokenRule, also if a thread
// ends before a barrier of the others, if threads wait at different barriers, or if only a part of
// a warp waits for the warp.
void run_blocks(const Blocks& blocks, const std::function<void(void*)>& body);

// For the threads of a block. Calls of one barrier are on one line of the source.
void wait_for_block(const SourceLine& where);
// Gives what each lane of the warp gave.
const std::array<uint64_t, kLanes>& exchange(unsigned mask, uint64_t own, const SourceLine& where);

}  // namespace cuda_on_host

// The number of blocks that have run of kernels with this in their names. For tests that open the
// back end as a shared library.
extern "C" int64_t cuda_on_host_blocks(const char* kernel);
