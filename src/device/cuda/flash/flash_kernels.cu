#include "device/cuda/flash/flash_kernels.h"

#include <exception>
#include <vector>

#include "device/cuda/flash/flash_run.cuh"
#include "device/cuda/flash/mutable_pointers.cuh"

namespace tandem::device::cuda::flash {
namespace {

using Element = __nv_bfloat16;

// FlashInfer counts the tokens before a row's own; -1: all.
int32_t window_left(const Shape& shape) { return shape.window == 0 ? -1 : shape.window - 1; }

template <class T>
T* at(std::byte* begin, int64_t offset) {
  return reinterpret_cast<T*>(begin + offset);
}

flashinfer::PrefillPlanInfo plan_info(const Plan& plan) {
  flashinfer::PrefillPlanInfo info;
  info.FromVector({plan.begin(), plan.end()});
  return info;
}

}  // namespace

bool serves(int32_t head_dim) { return head_dim == 64 || head_dim == 128; }

cudaError_t plan(cudaStream_t stream, const Shape& shape, const Sequences& sequences,
                 const Room& room, Plan& plan) {
  flashinfer::PrefillPlanInfo info;
  try {
    const cudaError_t error = flashinfer::PrefillPlan<int32_t>(
        room.partials, static_cast<size_t>(room.partial_bytes), room.plan, room.pinned_plan,
        static_cast<size_t>(room.plan_bytes), info, mutably(sequences.row_starts),
        mutably(sequences.page_starts), static_cast<uint32_t>(sequences.rows),
        static_cast<uint32_t>(sequences.count), static_cast<uint32_t>(shape.heads),
        static_cast<uint32_t>(shape.kv_heads), static_cast<uint32_t>(shape.head_dim),
        static_cast<uint32_t>(shape.head_dim), static_cast<uint32_t>(shape.page_tokens),
        /*enable_cuda_graph=*/false, sizeof(Element), window_left(shape),
        /*fixed_split_size=*/-1, /*disable_split_kv=*/false, /*num_colocated_ctas=*/0,
        /*uniform_q_len=*/0, stream);
    if (error != cudaSuccess) {
      return error;
    }
  } catch (const std::exception&) {  // so FlashInfer says that a room is too small
    return cudaErrorInvalidValue;
  }
  const std::vector<int64_t> numbers = info.ToVector();
  for (size_t i = 0; i < plan.size(); ++i) {
    plan[i] = numbers.at(i);
  }
  return cudaSuccess;
}

cudaError_t run(cudaStream_t stream, const Shape& shape, const Sequences& sequences,
                const Room& room, const Plan& plan, const Operands& operands) {
  const flashinfer::PrefillPlanInfo info = plan_info(plan);
  const int64_t head_stride = int64_t{shape.page_tokens} * shape.head_dim;
  const int64_t strides[3] = {operands.page_stride, head_stride, shape.head_dim};
  PagedParams params;
  params.q = elements<Element>(operands.q);
  params.paged_kv = flashinfer::paged_kv_t<Element, int32_t>(
      static_cast<uint32_t>(shape.kv_heads), static_cast<uint32_t>(shape.page_tokens),
      static_cast<uint32_t>(shape.head_dim), static_cast<uint32_t>(sequences.count),
      flashinfer::QKVLayout::kHND, elements<Element>(operands.keys),
      elements<Element>(operands.values), strides, mutably(operands.pages),
      mutably(sequences.page_starts), mutably(sequences.last_page_tokens));
  params.q_indptr = mutably(sequences.row_starts);
  params.o = elements<Element>(operands.out);
  params.group_size = flashinfer::uint_fastdiv(static_cast<uint32_t>(shape.heads / shape.kv_heads));
  params.sm_scale = operands.scale;
  params.num_qo_heads = static_cast<uint32_t>(shape.heads);
  params.q_stride_n = shape.heads * shape.head_dim;
  params.q_stride_h = shape.head_dim;
  params.window_left = window_left(shape);
  params.request_indices = at<int32_t>(room.plan, info.request_indices_offset);
  params.qo_tile_indices = at<int32_t>(room.plan, info.qo_tile_indices_offset);
  params.kv_tile_indices = at<int32_t>(room.plan, info.kv_tile_indices_offset);
  params.o_indptr = at<int32_t>(room.plan, info.o_indptr_offset);
  params.kv_chunk_size_ptr = at<int32_t>(room.plan, info.kv_chunk_size_ptr_offset);
  params.max_total_num_rows = static_cast<uint32_t>(info.total_num_rows);
  params.padded_batch_size = static_cast<uint32_t>(info.padded_batch_size);
  Partials partials;
  if (info.split_kv) {
    params.merge_indptr = at<int32_t>(room.plan, info.merge_indptr_offset);
    partials = {at<Element>(room.partials, info.v_offset), at<float>(room.partials, info.s_offset)};
  }
  try {
    return shape.head_dim == 64 ? run_64(params, partials, info.cta_tile_q, stream)
                                : run_128(params, partials, info.cta_tile_q, stream);
  } catch (const std::exception&) {  // shapes that FlashInfer has no kernel for on this GPU
    return cudaErrorInvalidDeviceFunction;
  }
}

}  // namespace tandem::device::cuda::flash
