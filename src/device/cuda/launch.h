// Runs a kernel of kernels/ over all its indices: on a stream of the GPU where a CUDA compiler
// reads this, else in the host's CUDA of the tests (tests/cuda_on_host), in the order of a stream
// too. Returns what CUDA says of the launch, not of the kernel's run.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

namespace tandem::device::cuda {

#ifdef __CUDACC__

template <class Kernel>
__global__ void run_kernel(Kernel kernel, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    kernel(i);
  }
}

template <class Kernel>
cudaError_t launch(cudaStream_t stream, const Kernel& kernel) {
  constexpr int64_t kThreads = 128;
  constexpr int64_t kMaxBlocks = int64_t{1} << 20;
  const int64_t count = kernel.count();
  if (count <= 0) {
    return cudaSuccess;
  }
  const int64_t blocks = std::min((count + kThreads - 1) / kThreads, kMaxBlocks);
  run_kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(kThreads), 0, stream>>>(kernel,
                                                                                            count);
  return cudaGetLastError();
}

#else

template <class Kernel>
cudaError_t launch(cudaStream_t stream, const Kernel& kernel) {
  const int64_t count = kernel.count();
  if (count <= 0) {
    return cudaSuccess;
  }
  cuda_on_host::enqueue(stream, [kernel, count] {
    for (int64_t i = 0; i < count; ++i) {
      kernel(i);
    }
  });
  return cudaGetLastError();
}

#endif

// The same for several kernels, in their order. The first error ends it.
template <class Kernel, class... Kernels>
cudaError_t launch(cudaStream_t stream, const Kernel& first,
                   const Kernels&... others) requires(sizeof...(Kernels) > 0) {
  const cudaError_t error = launch(stream, first);
  return error == cudaSuccess ? launch(stream, others...) : error;
}

}  // namespace tandem::device::cuda
