// Times what a stream runs, by events. It waits by asking: a call that waits in the driver would
// never return from a kernel that hangs.
//
// Threads: one.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>

namespace tandem::device::cuda {

class GpuTimer {
 public:
  // The stream must outlive it. Nothing else may be called if this fails.
  cudaError_t open(cudaStream_t stream, std::chrono::milliseconds patience);
  cudaError_t close();

  // The work launched between these two is timed as a whole, in microseconds. end() waits for it.
  cudaError_t begin();
  cudaError_t end(double& us);
  // Waits for everything launched so far. cudaErrorLaunchTimeout: that took longer than the
  // patience.
  cudaError_t wait();

 private:
  cudaStream_t stream_ = nullptr;
  std::chrono::milliseconds patience_{0};
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace tandem::device::cuda
