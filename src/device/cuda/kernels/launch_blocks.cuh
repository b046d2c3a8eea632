// Runs a fast kernel (cooperation.cuh): on a stream of the GPU where a CUDA compiler reads this,
// else in the host's CUDA of the tests (tests/cuda_on_host). Returns what CUDA says of the launch,
// not of the kernel's run.
#pragma once

#include <cuda_runtime.h>

namespace tandem::device::cuda {

#ifdef __CUDACC__

inline constexpr bool kRunsBlocks = true;
inline constexpr bool kFastByDefault = true;

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kMaxThreads, 1)
    run_blocks(const __grid_constant__ Kernel kernel) {
  if constexpr (requires { typename Kernel::Shared; }) {
    __shared__ typename Kernel::Shared shared;
    kernel(shared);
  } else {
    kernel();
  }
}

// At most Kernel::kMaxThreads threads, whole warps.
template <class Kernel>
cudaError_t launch_blocks(cudaStream_t stream, const Kernel& kernel, dim3 grid, unsigned threads) {
  run_blocks<<<grid, threads, 0, stream>>>(kernel);
  return cudaGetLastError();
}

#else

inline constexpr bool kRunsBlocks = cuda_on_host::kRunsBlocks;
// Threads that wait for each other are slow on a host.
inline constexpr bool kFastByDefault = false;

template <class Kernel>
cudaError_t launch_blocks(cudaStream_t stream, const Kernel& kernel, dim3 grid, unsigned threads) {
  cuda_on_host::enqueue_blocks(stream, kernel, grid, threads);
  return cudaGetLastError();
}

#endif

}  // namespace tandem::device::cuda
