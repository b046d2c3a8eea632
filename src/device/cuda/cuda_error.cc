#include "device/cuda/cuda_error.h"

#include <cstdio>
#include <cstdlib>

namespace tandem::device::cuda {

void fail(cudaError_t error, const char* doing) {
  std::fprintf(stderr,
               "tandem: the GPU failed while %s: %s (%s, CUDA error %d). What was in its memory is "
               "lost, so the process ends; start it again, and look for 'Xid' in the kernel log if "
               "it happens again\n",
               doing, cudaGetErrorString(error), cudaGetErrorName(error), static_cast<int>(error));
  std::fflush(stderr);
  std::abort();
}

}  // namespace tandem::device::cuda
