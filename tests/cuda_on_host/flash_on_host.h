// FlashInfer as flash_kernels.cc plays it for the host's CUDA.
#pragma once

#include <cstdint>

namespace cuda_on_host {

// The build seems to have the kernels for Hopper if this variable has a value.
inline constexpr const char* kHopperVariable = "CUDA_ON_HOST_HOPPER";
// Calls that Hopper's kernels have attended.
int64_t hopper_runs();

}  // namespace cuda_on_host
