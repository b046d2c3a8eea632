// Arguments of FlashInfer's kernels for Hopper, and their launch for each size of heads; each size
// has a source of its own, so that they compile side by side.
#pragma once

#include <cuda_runtime_api.h>
#include <cutlass/numeric_types.h>

#include <cstdint>
#include <flashinfer/attention/hopper/default_params.cuh>

namespace tandem::device::cuda::flash::hopper {

using Element = cutlass::bfloat16_t;
using Params = flashinfer::BatchPrefillPagedParams<Element, Element, Element, int32_t>;

cudaError_t run_64(Params& params, cudaStream_t stream);
cudaError_t run_128(Params& params, cudaStream_t stream);

}  // namespace tandem::device::cuda::flash::hopper
