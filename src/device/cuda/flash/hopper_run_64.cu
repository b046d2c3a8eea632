#include "device/cuda/flash/hopper_run.cuh"

namespace tandem::device::cuda::flash::hopper {

cudaError_t run_64(Params& params, cudaStream_t stream) { return run_head_dim<64>(params, stream); }

}  // namespace tandem::device::cuda::flash::hopper
