// Which GPU there is, or why none can be used: every CUDA error before a device is open means
// "absent", with the reason and the cure. Any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::device::cuda {

struct Gpu {
  int index = 0;
  std::string name;
  int major = 0;  // of its compute capability
  int minor = 0;
  int64_t memory_bytes = 0;
  int64_t free_bytes = 0;
};

// The GPU that `options` name: "" is the first one, "N" or "N,..." number N.
Result<int> gpu_index(std::string_view options);

// kUnavailable, saying what is wrong and what to do, where the GPU cannot be used.
Result<Gpu> probe(int index);

// "cuda:0: NVIDIA H200, sm_90, 139 GiB free of 141 GiB".
Result<std::string> describe_gpu(const std::string& options);

// What a CUDA error says to whoever wanted a GPU. `driver` is the version of CUDA that the driver
// knows, as cudaDriverGetVersion gives it; 0: there is no driver.
Error absent(cudaError_t error, int driver);

// "13.0" of 13000.
std::string version_text(int version);

}  // namespace tandem::device::cuda
