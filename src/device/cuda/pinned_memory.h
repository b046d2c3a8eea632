// Memory of the host that the GPU reads and writes by itself: locked pages. CUDA makes and locks
// pages on one thread, which takes seconds for a large tier. So the pages of large pieces are made
// here, on several threads, and only locked by CUDA. They lie on the memory nodes of these threads.
//
// Not thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "device/cpu/pages.h"

namespace tandem::device::cuda {

class PinnedMemory {
 public:
  // Smaller pieces come from CUDA alone.
  static constexpr int64_t kLargeBytes = int64_t{256} << 20;

  PinnedMemory() = default;
  ~PinnedMemory() = default;  // after end(), or the GPU has failed
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  // Once. cudaErrorMemoryAllocation: it is not to be had.
  cudaError_t take(int device, int64_t bytes);
  // Once nothing uses it.
  cudaError_t end();

  [[nodiscard]] std::byte* begin() const { return begin_; }
  // Whether it began as zeros.
  [[nodiscard]] bool is_zeroed() const { return registered_.bytes() > 0; }

 private:
  std::byte* begin_ = nullptr;
  Pages registered_;  // empty: CUDA allocated it
};

}  // namespace tandem::device::cuda
