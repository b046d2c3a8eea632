#include "device/cuda/planned_attention.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "device/cuda/cuda_ops.h"

namespace tandem::device::cuda {
namespace {

int64_t partial_bytes(const kernels::KvLayout& layout, int32_t heads) {
  return flash::partial_bytes(layout.padded_head_dim, heads);
}

flash::Shape shape_of(const AttentionBatch& batch) {
  return {.heads = batch.heads,
          .kv_heads = batch.layout.kv_heads,
          .head_dim = batch.layout.padded_head_dim,
          .page_tokens = batch.layout.block_tokens,
          .window = batch.window};
}

int32_t context_of(const kernels::AttentionSlice& slice) {
  return slice.first_position + slice.row_count;
}

// Whether Hopper's kernels are to attend the slices begin .. end-1: chunks alone, and it pays.
bool takes_hopper(const PrefillChoice& choice, const AttentionBatch& batch, int32_t begin,
                  int32_t end) {
  int64_t rows = 0;
  int64_t max_context = 0;
  for (int32_t i = begin; i < end; ++i) {
    const kernels::AttentionSlice& slice = batch.host_slices[i];
    if (slice.row_count == 1) {
      return false;
    }
    rows += slice.row_count;
    max_context = std::max<int64_t>(max_context, context_of(slice));
  }
  return choice.hopper(shape_of(batch), end - begin, rows, max_context);
}

// The slices of the first call: decode rows or chunks, if the slices of each kind lie together;
// else all.
int32_t first_call(const AttentionBatch& batch) {
  const kernels::AttentionSlice* slices = batch.host_slices;
  const int32_t count = batch.shape.slices;
  const auto decodes = [slices](int32_t i) { return slices[i].row_count == 1; };
  int32_t changes = 0;
  int32_t first = count;
  for (int32_t i = 1; i < count; ++i) {
    if (decodes(i) != decodes(i - 1)) {
      first = ++changes == 1 ? i : count;
    }
  }
  return first;
}

}  // namespace

bool PlanRoom::claim(cudaStream_t stream) {
  if (on_the_way_.empty() || device_ == nullptr) {
    return false;
  }
  owner_ = owner_ == nullptr ? stream : owner_;
  return owner_ == stream;
}

// Of one step: writes the starts of its sequences to pinned memory, at the offsets that they have
// in the plan's device memory.
class PlannedAttention::Planning {
 public:
  Planning(const AttentionBatch& batch, std::byte* device, std::byte* pinned)
      : batch_(batch), device_(device), pinned_(pinned) {
    const int32_t count = batch.shape.slices;
    page_starts_ = take(count + 1);
    last_page_tokens_ = take(count);
    int32_t page = 0;
    for (int32_t i = 0; i < count; ++i) {
      const int32_t context = context_of(batch.host_slices[i]);
      host(page_starts_)[i] = page;
      page += (context + batch.layout.block_tokens - 1) / batch.layout.block_tokens;
      host(last_page_tokens_)[i] = (context - 1) % batch.layout.block_tokens + 1;
    }
    host(page_starts_)[count] = page;
  }

  // Whether a step's starts and block tables fit a plan's memory.
  static bool fits(const AttentionBatch& batch) {
    int64_t pages = 0;
    for (int32_t i = 0; i < batch.shape.slices; ++i) {
      pages += context_of(batch.host_slices[i]) / batch.layout.block_tokens + 1;
    }
    const int64_t starts = 3 * int64_t{batch.shape.slices} + 4;
    return starts * int64_t{sizeof(int32_t)} <= PlanRoom::kStartsBytes &&
           pages * int64_t{sizeof(int32_t)} <= PlanRoom::kPagesBytes;
  }

  // Divides the slices begin .. end-1 as the step's call number `number`.
  cudaError_t add(cudaStream_t stream, const PrefillChoice& prefill, int32_t begin, int32_t end,
                  int64_t number, Call& call) {
    const kernels::AttentionSlice* slices = batch_.host_slices;
    const int64_t starts = take(end - begin + 1);
    int32_t rows = 0;
    for (int32_t i = begin; i < end; ++i) {
      host(starts)[i - begin] = rows;
      rows += slices[i].row_count;
    }
    host(starts)[end - begin] = rows;
    call.first_row = slices[begin].row_begin;
    call.sequences = {.count = end - begin,
                      .rows = rows,
                      .row_starts = on_device(starts),
                      .page_starts = on_device(page_starts_) + begin,
                      .last_page_tokens = on_device(last_page_tokens_) + begin};
    const flash::Sequences on_host = {.count = end - begin,
                                      .rows = rows,
                                      .row_starts = host(starts),
                                      .page_starts = host(page_starts_) + begin,
                                      .last_page_tokens = host(last_page_tokens_) + begin};
    const flash::Room room = call_room(batch_, device_, pinned_, number);
    call.shape = shape_of(batch_);
    if (takes_hopper(prefill, batch_, begin, end)) {
      call.kernels = flash::kHopper;
      call.shape.window = 0;  // it hides nothing
      const cudaError_t error = flash::hopper::plan(stream, call.shape, on_host, room, call.plan);
      if (error != cudaErrorInvalidValue) {  // else the plan does not fit
        return error;
      }
    }
    call.kernels = flash::kAmpere;
    call.shape = shape_of(batch_);
    return flash::plan(stream, call.shape, on_host, room, call.plan);
  }

  cudaError_t copy(cudaStream_t stream) const {
    const cudaError_t error =
        cudaMemcpyAsync(device_, pinned_, static_cast<size_t>(used_), cudaMemcpyDefault, stream);
    const int32_t pages = host(page_starts_)[batch_.shape.slices];
    return error == cudaSuccess ? pack_tables(stream, {.slices = batch_.slices,
                                                       .slice_count = batch_.shape.slices,
                                                       .page_starts = on_device(page_starts_),
                                                       .pages = pages,
                                                       .packed = reinterpret_cast<int32_t*>(
                                                           device_ + PlanRoom::kPinnedBytes)})
                                : error;
  }

  // Of a plan: the starts, FlashInfer's two calls, the block tables. `pinned` null: not needed.
  static flash::Room call_room(const AttentionBatch& batch, std::byte* device, std::byte* pinned,
                               int64_t number) {
    const int64_t offset = PlanRoom::kStartsBytes + number * PlanRoom::kCallBytes;
    const int64_t partials = partial_bytes(batch.layout, batch.heads);
    auto* workspace = reinterpret_cast<std::byte*>(batch.workspace);
    return {.plan = device + offset,
            .pinned_plan = pinned == nullptr ? nullptr : pinned + offset,
            .plan_bytes = PlanRoom::kCallBytes,
            .partials = workspace,
            .partial_bytes = partials};
  }

 private:
  int64_t take(int64_t numbers) {
    const int64_t begin = used_;
    used_ += numbers * int64_t{sizeof(int32_t)};
    return begin;
  }
  [[nodiscard]] int32_t* host(int64_t offset) const {
    return reinterpret_cast<int32_t*>(pinned_ + offset);
  }
  [[nodiscard]] const int32_t* on_device(int64_t offset) const {
    return reinterpret_cast<const int32_t*>(device_ + offset);
  }

  const AttentionBatch& batch_;
  std::byte* const device_;
  std::byte* const pinned_;
  int64_t used_ = 0;
  int64_t page_starts_ = 0;
  int64_t last_page_tokens_ = 0;
};

bool PlannedAttention::serves(const kernels::KvLayout& layout) {
  return layout.type == ElementType::kBF16 && flash::serves(layout.padded_head_dim);
}

int64_t PlannedAttention::workspace_bytes(const kernels::KvLayout& layout, int32_t heads) {
  return partial_bytes(layout, heads);
}

cudaError_t PlannedAttention::plan(PlanRoom& room, cudaStream_t stream,
                                   const AttentionBatch& batch) {
  Step& step = steps_.at(static_cast<size_t>(batch.plan));
  step.call_count = 0;
  const int64_t needed = workspace_bytes(batch.layout, batch.heads);
  if (!serves(batch.layout) || batch.shape.slices <= 0 || !Planning::fits(batch) ||
      needed > batch.workspace_floats * int64_t{sizeof(float)} || !room.claim(stream)) {
    return cudaSuccess;
  }
  cudaError_t error = cudaSuccess;
  std::byte* pinned = room.on_the_way().next(error);
  if (pinned == nullptr) {
    return error;
  }
  Planning planning(batch, room.device(batch.plan), pinned);
  const int32_t count = batch.shape.slices;
  const int32_t first = first_call(batch);
  error = planning.add(stream, room.prefill(), 0, first, 0, step.calls[0]);
  if (error == cudaSuccess && first < count) {
    error = planning.add(stream, room.prefill(), first, count, 1, step.calls[1]);
  }
  const bool planned = error == cudaSuccess;
  if (error == cudaErrorInvalidValue) {
    error = cudaSuccess;  // it does not fit: the plain kernels attend
    if (!std::exchange(warned_, true)) {
      log::warn(
          "attention of a step with {} rows does not fit FlashInfer's memory; the plain kernels "
          "compute such steps, slowly",
          batch.shape.rows);
    }
  }
  if (planned) {
    error = planning.copy(stream);
    step.call_count = first < count ? 2 : 1;
  }
  const cudaError_t recorded = room.on_the_way().passed(stream);
  return error == cudaSuccess ? recorded : error;
}

bool PlannedAttention::has(const AttentionOp& op) const {
  const AttentionBatch& batch = op.batch;
  return steps_.at(static_cast<size_t>(batch.plan)).call_count > 0 &&
         op.q_type == ElementType::kBF16 && op.out_type == ElementType::kBF16 &&
         op.out_stride == int64_t{batch.heads} * batch.layout.padded_head_dim;
}

cudaError_t PlannedAttention::run(const PlanRoom& room, cudaStream_t stream,
                                  const AttentionOp& op) const {
  const AttentionBatch& batch = op.batch;
  const kernels::KvLayout& layout = batch.layout;
  const Step& step = steps_.at(static_cast<size_t>(batch.plan));
  std::byte* device = room.device(batch.plan);
  const int64_t columns = int64_t{batch.heads} * layout.padded_head_dim;
  const auto* q = static_cast<const BFloat16*>(op.q);
  cudaError_t error = cudaSuccess;
  for (int32_t i = 0; i < step.call_count && error == cudaSuccess; ++i) {
    const Call& call = step.calls.at(static_cast<size_t>(i));
    const flash::Operands operands = {
        .q = q + call.first_row * columns,
        .keys = reinterpret_cast<const BFloat16*>(op.kv + layout.key_offset(0, op.layer, 0)),
        .values = reinterpret_cast<const BFloat16*>(op.kv + layout.value_offset(0, op.layer, 0)),
        .page_stride = layout.block_bytes() / int64_t{sizeof(BFloat16)},
        .pages = reinterpret_cast<const int32_t*>(device + PlanRoom::kPinnedBytes),
        .scale = op.scale,
        .out = static_cast<BFloat16*>(op.out) + call.first_row * op.out_stride};
    error =
        call.kernels.run_call(stream, call.shape, call.sequences,
                              Planning::call_room(batch, device, nullptr, i), call.plan, operands);
  }
  return error;
}

}  // namespace tandem::device::cuda
