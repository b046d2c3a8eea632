// Turns CUDA's error codes into our errors. Any thread.
#pragma once

#include <cuda_runtime_api.h>

namespace tandem::device::cuda {

// Stops the process, naming the error and what was being done. A CUDA error after the start is
// sticky: the context is lost, and with it everything in device memory.
[[noreturn]] void fail(cudaError_t error, const char* doing);

inline void must(cudaError_t error, const char* doing) {
  if (error != cudaSuccess) {
    fail(error, doing);
  }
}

}  // namespace tandem::device::cuda
