// Runs a fast kernel (cooperation.cuh) on a stream. Returns what CUDA says of the launch, not of
// the kernel's run.
#pragma once

#include <cuda_runtime_api.h>

namespace tandem::device::cuda {

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kMaxThreads, 1)
    run_blocks(const __grid_constant__ Kernel kernel) {
  kernel();
}

// At most Kernel::kMaxThreads threads, whole warps.
template <class Kernel>
cudaError_t launch_blocks(cudaStream_t stream, const Kernel& kernel, dim3 grid, unsigned threads) {
  run_blocks<<<grid, threads, 0, stream>>>(kernel);
  return cudaGetLastError();
}

}  // namespace tandem::device::cuda
