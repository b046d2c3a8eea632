// A build without FlashInfer's kernels for Hopper: those for every GPU attend prompts, too.
#include "device/cuda/flash/flash_kernels.h"

namespace tandem::device::cuda::flash::hopper {

bool serves(int32_t) { return false; }

cudaError_t plan(cudaStream_t, const Shape&, const Sequences&, const Room&, Plan&) {
  return cudaErrorInvalidValue;
}

cudaError_t run(cudaStream_t, const Shape&, const Sequences&, const Room&, const Plan&,
                const Operands&) {
  return cudaErrorInvalidValue;
}

}  // namespace tandem::device::cuda::flash::hopper
