// Plans and arguments of FlashInfer's kernels for Hopper.
#include <exception>
#include <flashinfer/attention/scheduler.cuh>
#include <vector>

#include "device/cuda/flash/flash_kernels.h"
#include "device/cuda/flash/hopper_params.cuh"
#include "device/cuda/flash/mutable_pointers.cuh"

namespace tandem::device::cuda::flash::hopper {
namespace {

std::vector<int32_t> contexts_of(const Shape& shape, const Sequences& sequences) {
  std::vector<int32_t> contexts;
  for (int32_t i = 0; i < sequences.count; ++i) {
    const int32_t pages = sequences.page_starts[i + 1] - sequences.page_starts[i];
    contexts.push_back((pages - 1) * shape.page_tokens + sequences.last_page_tokens[i]);
  }
  return contexts;
}

// The work of each of the GPU's multiprocessors, as it lies in the room.
void take_plan(Params& params, const Plan& plan, std::byte* room) {
  flashinfer::PrefillPlanSM90Info info;
  constexpr int kNumbers = 9;
  info.FromVector({plan.begin(), plan.begin() + kNumbers});
  const auto at = [room](int64_t offset) { return reinterpret_cast<int32_t*>(room + offset); };
  params.qo_tile_indices = at(info.qo_tile_indices_offset);
  params.qo_indptr = at(info.qo_indptr_offset);
  params.kv_indptr = at(info.kv_indptr_offset);
  params.qo_lens = at(info.qo_len_offset);
  params.kv_lens = at(info.kv_len_offset);
  params.head_indices = at(info.head_indices_offset);
  params.work_indptr = at(info.work_indptr_offset);
  params.batch_indices = at(info.batch_indices_offset);
}

}  // namespace

bool serves(int32_t head_dim) { return head_dim == 64 || head_dim == 128; }

cudaError_t plan(cudaStream_t stream, const Shape& shape, const Sequences& sequences,
                 const Room& room, Plan& plan) {
  if (shape.window != 0) {
    return cudaErrorInvalidValue;
  }
  flashinfer::PrefillPlanSM90Info info;
  std::vector<int32_t> contexts = contexts_of(shape, sequences);
  try {
    const cudaError_t error = flashinfer::PrefillSM90Plan<int32_t>(
        room.partials, static_cast<size_t>(room.partial_bytes), room.plan, room.pinned_plan,
        static_cast<size_t>(room.plan_bytes), info, mutably(sequences.row_starts),
        mutably(sequences.page_starts), contexts.data(), static_cast<uint32_t>(sequences.rows),
        static_cast<uint32_t>(sequences.count), static_cast<uint32_t>(shape.heads),
        static_cast<uint32_t>(shape.kv_heads), static_cast<uint32_t>(shape.head_dim),
        static_cast<uint32_t>(shape.head_dim), static_cast<uint32_t>(shape.page_tokens),
        /*causal=*/true, /*enable_cuda_graph=*/false, sizeof(Element), stream);
    if (error != cudaSuccess) {
      return error;
    }
  } catch (const std::exception&) {  // so FlashInfer says that the room is too small
    return cudaErrorInvalidValue;
  }
  if (info.same_schedule_for_all_heads) {
    return cudaErrorInvalidValue;  // from half a million rows on; no instance is built for it
  }
  const std::vector<int64_t> numbers = info.ToVector();
  plan = {};
  for (size_t i = 0; i < numbers.size(); ++i) {
    plan.at(i) = numbers[i];
  }
  return cudaSuccess;
}

cudaError_t run(cudaStream_t stream, const Shape& shape, const Sequences& sequences,
                const Room& room, const Plan& plan, const Operands& operands) {
  const int64_t head_stride = int64_t{shape.page_tokens} * shape.head_dim;
  const int64_t row_stride = int64_t{shape.heads} * shape.head_dim;
  Params params = {};
  params.q_ptr = elements<Element>(operands.q);
  params.k_ptr = elements<Element>(operands.keys);
  params.v_ptr = elements<Element>(operands.values);
  params.o_ptr = elements<Element>(operands.out);
  params.kv_indices = mutably(operands.pages);
  params.additional_params.sm_scale = operands.scale;
  params.q_stride_n = row_stride;
  params.q_stride_h = shape.head_dim;
  params.o_stride_n = row_stride;
  params.o_stride_h = shape.head_dim;
  params.k_stride_n = shape.head_dim;
  params.k_stride_h = head_stride;
  params.v_stride_n = shape.head_dim;
  params.v_stride_h = head_stride;
  params.k_page_stride = operands.page_stride;
  params.v_page_stride = operands.page_stride;
  params.nnz_qo = sequences.rows;
  params.num_qo_heads = shape.heads;
  params.num_kv_heads = shape.kv_heads;
  params.group_size = shape.heads / shape.kv_heads;
  params.page_size = shape.page_tokens;
  params.window_left = -1;
  params.causal = true;
  take_plan(params, plan, room.plan);
  try {
    return shape.head_dim == 64 ? run_64(params, stream) : run_128(params, stream);
  } catch (const std::exception&) {  // FlashInfer refuses the call
    return cudaErrorInvalidDeviceFunction;
  }
}

}  // namespace tandem::device::cuda::flash::hopper
