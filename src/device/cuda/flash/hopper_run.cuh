// Attention by FlashInfer's kernels for Hopper for one size of heads.
#pragma once

// FlashInfer's list of CUTLASS's headers has headers for tests, too, which need more of CUDA's
// toolkit than is installed. This header's guard leaves the list out; its kernels include by
// themselves all that they need.
#define FLASHINFER_CUTLASS_UTILS_CUH_

#include <cute/tensor.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>

#include "device/cuda/flash/hopper_params.cuh"

namespace tandem::device::cuda::flash::hopper {

// Causal, without a window, each tile of queries and head a piece of work of its own: the only
// instance of a size that plan() asks for.
template <uint32_t head_dim>
cudaError_t run_head_dim(Params& params, cudaStream_t stream) {
  return flashinfer::BatchPrefillWithPagedKVCacheDispatched<
      head_dim, head_dim, flashinfer::MaskMode::kCausal, /*LEFT_SLIDING_WINDOW=*/false,
      /*SAME_SCHEDULE_FOR_ALL_HEADS=*/false, flashinfer::StandardAttention, Params>(
      params, /*enable_pdl=*/false, stream);
}

}  // namespace tandem::device::cuda::flash::hopper
