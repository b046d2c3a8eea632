// Whether the GPU still works. A CUDA error after the start is taken to be sticky: the context is
// lost, and with it everything in device memory. The first error is noted; from then on no
// CUDA call is made that could wait, and nothing is returned to CUDA: only the end of the process
// frees what a lost context held.
//
// Threads: any.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <mutex>
#include <string_view>

#include "base/result.h"

namespace tandem::device::cuda {

class GpuHealth {
 public:
  // Whether a call went well, and with it all before it. If not, notes the error, naming
  // what was being done ("copying").
  bool ok(cudaError_t error, std::string_view doing);
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Null while the GPU works; stays as it is afterwards.
  [[nodiscard]] const Error* failure() const { return failed() ? &failure_ : nullptr; }

 private:
  std::mutex mutex_;  // guards failure_ until failed_ is set
  Error failure_;
  std::atomic<bool> failed_{false};
};

// The message for a lost GPU: cause and cure.
Error gpu_failure(cudaError_t error, std::string_view doing);

}  // namespace tandem::device::cuda
