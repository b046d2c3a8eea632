// Attention by FlashInfer for one size of heads; each size has a source of its own, so that they
// compile side by side.
#pragma once

#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/attention/variants.cuh>
#include <flashinfer/page.cuh>

#include "device/cuda/flash/flash_kernels.h"

namespace tandem::device::cuda::flash {

// What FlashInfer's kernels look for in their arguments, by these names.
struct PagedParams {
  using DTypeQ = __nv_bfloat16;
  using DTypeKV = __nv_bfloat16;
  using DTypeO = __nv_bfloat16;
  using IdType = int32_t;

  DTypeQ* q = nullptr;
  flashinfer::paged_kv_t<DTypeKV, IdType> paged_kv;
  IdType* q_indptr = nullptr;
  DTypeO* o = nullptr;
  float* lse = nullptr;
  flashinfer::uint_fastdiv group_size;
  float sm_scale = 0.0F;
  uint32_t num_qo_heads = 0;
  IdType q_stride_n = 0;
  IdType q_stride_h = 0;
  uint32_t k_sf_stride_page = 0;
  uint32_t k_sf_stride_n = 0;
  uint32_t k_sf_stride_h = 0;
  uint32_t v_sf_stride_page = 0;
  uint32_t v_sf_stride_n = 0;
  uint32_t v_sf_stride_h = 0;
  int32_t window_left = -1;
  IdType* request_indices = nullptr;
  IdType* qo_tile_indices = nullptr;
  IdType* kv_tile_indices = nullptr;
  IdType* merge_indptr = nullptr;
  IdType* o_indptr = nullptr;
  bool* block_valid_mask = nullptr;
  IdType* kv_chunk_size_ptr = nullptr;
  uint32_t max_total_num_rows = 0;
  uint32_t* total_num_rows = nullptr;
  uint32_t padded_batch_size = 0;
  bool partition_kv = false;

  __host__ __device__ uint32_t get_qo_len(uint32_t i) const {
    return q_indptr[i + 1] - q_indptr[i];
  }
  __host__ __device__ uint32_t get_kv_len(uint32_t i) const { return paged_kv.get_length(i); }
};

// Partial results of a divided context; null: it is not divided.
struct Partials {
  __nv_bfloat16* values = nullptr;
  float* weights = nullptr;
};

cudaError_t run_64(const PagedParams& params, const Partials& partials, int64_t tile_rows,
                   cudaStream_t stream);
cudaError_t run_128(const PagedParams& params, const Partials& partials, int64_t tile_rows,
                    cudaStream_t stream);

template <uint32_t head_dim, uint32_t tile_rows>
cudaError_t run_tile(const PagedParams& params, const Partials& partials, cudaStream_t stream) {
  // The variant with a window also serves without one: the mask is looked at only in its tiles.
  using Variant = flashinfer::DefaultAttention<false, true, false, false>;
  return flashinfer::BatchPrefillWithPagedKVCacheDispatched<
      true, tile_rows, head_dim, head_dim, flashinfer::PosEncodingMode::kNone, false,
      flashinfer::MaskMode::kCausal, Variant, PagedParams>(params, partials.values,
                                                           partials.weights, false, stream);
}

template <uint32_t head_dim>
cudaError_t run_head_dim(const PagedParams& params, const Partials& partials, int64_t tile_rows,
                         cudaStream_t stream) {
  switch (tile_rows) {
    case 16:
      return run_tile<head_dim, 16>(params, partials, stream);
    case 64:
      return run_tile<head_dim, 64>(params, partials, stream);
    case 128:
      return run_tile<head_dim, 128>(params, partials, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace tandem::device::cuda::flash
