#include "device/cuda/cuda_ops.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <variant>

#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/fast_copies.cuh"
#include "device/cuda/kernels/fast_route.cuh"
#include "device/cuda/kernels/fast_rowwise.cuh"
#include "device/cuda/kernels/fast_sample.cuh"
#include "device/cuda/kernels/kv_move.h"
#include "device/cuda/kernels/products.h"
#include "device/cuda/kernels/rowwise.h"
#include "device/cuda/kernels/sample.h"
#include "device/cuda/launch.h"

namespace tandem::device::cuda {

namespace {

// make_cuda_device has checked the value.
bool wants_fast_kernels() {
  static const bool kFast = [] {
    const char* text = std::getenv(kKernelsVariable);
    return text == nullptr || *text == '\0' ? kFastByDefault : std::string_view(text) == "fast";
  }();
  return kFast;
}

// True if fast kernels took the op, and `error` is what CUDA says of their launches.
template <class AnyOp>
bool ran_fast([[maybe_unused]] cudaStream_t stream, [[maybe_unused]] const AnyOp& op,
              [[maybe_unused]] cudaError_t& error) {
  if constexpr (requires { run_fast(stream, op); }) {
    if (kRunsBlocks && wants_fast_kernels()) {
      const FastResult result = run_fast(stream, op);
      error = result.value_or(error);
      return result.has_value();
    }
  }
  return false;
}

template <class AnyOp>
concept HasKernels = requires(const AnyOp& op) {
  kernels_of(op);
};
// The streams run these in ways of their own.
template <class AnyOp>
concept IsOfStream = std::is_same_v<AnyOp, CopyOp> || std::is_same_v<AnyOp, KvMoveOp> ||
    std::is_same_v<AnyOp, UploadOp> || std::is_same_v<AnyOp, AttentionPlanOp> ||
    std::is_same_v<AnyOp, AttentionOp>;

}  // namespace

cudaError_t run(cudaStream_t stream, const Op& op) {
  return std::visit(
      [stream]<class AnyOp>(const AnyOp& any) {
        static_assert(HasKernels<AnyOp> != IsOfStream<AnyOp>, "an op without kernels_of");
        if constexpr (HasKernels<AnyOp>) {
          cudaError_t error = cudaSuccess;
          if (ran_fast(stream, any, error)) {
            return error;
          }
          return std::apply([stream](const auto&... kernels) { return launch(stream, kernels...); },
                            kernels_of(any));
        } else {
          return cudaErrorInvalidValue;
        }
      },
      op);
}

cudaError_t run(cudaStream_t stream, const SampleOp& op, SharedRoom& room) {
  const SharedRoom::Hold hold(room, stream);
  cudaError_t error = hold.error();
  if (error != cudaSuccess ||
      ran_fast(stream, SampleInRoom{op, hold.data(), room.bytes()}, error)) {
    return error;
  }
  return run(stream, Op(op));
}

cudaError_t run(cudaStream_t stream, const GateUpOp& op, const GateUpRows& rows) {
  const SiluMul kernel{op, {rows.sums, rows.begin, rows.count}};
  cudaError_t error = cudaSuccess;
  return ran_fast(stream, kernel, error) ? error : launch(stream, kernel);
}

cudaError_t run(cudaStream_t stream, const UploadOp& op, const UploadRows& rows) {
  return launch(stream, Upload{.op = op,
                               .source = rows.source,
                               .source_row = rows.source_row,
                               .row_begin = rows.begin,
                               .row_count = rows.count});
}

cudaError_t pack_tables(cudaStream_t stream, const PackTables& tables) {
  return launch(stream, tables);
}

namespace {

template <class Element>
cudaError_t move(cudaStream_t stream, const KvMoveOp& op) {
  return launch(stream, MoveKv<Element>{.source = static_cast<const Element*>(op.copy.source),
                                        .target = static_cast<Element*>(op.copy.target),
                                        .bytes = op.copy.bytes,
                                        .layout = op.layout,
                                        .first_head = op.first_head,
                                        .to_host = op.to_host});
}

}  // namespace

cudaError_t run(cudaStream_t stream, const KvMoveOp& op) {
  return op.layout.type == ElementType::kF32 ? move<float>(stream, op) : move<BFloat16>(stream, op);
}

int64_t attention_pair_bytes(const kernels::KvLayout& layout, int64_t context_tokens,
                             int64_t window) {
  return most_splits(context_tokens, window) * record_floats(layout) *
         static_cast<int64_t>(sizeof(float));
}

cudaError_t run(cudaStream_t stream, const AttentionOp& op) {
  const AttentionBatch& batch = op.batch;
  AttentionPairs on{.args = kernel_args(op), .q = op.q, .q_type = op.q_type};
  on.args.partials = batch.workspace;
  on.splits = most_splits(batch.shape.max_context, batch.window);
  const int64_t all = int64_t{batch.shape.rows} * batch.heads;
  const int64_t room = batch.workspace_floats / (on.splits * record_floats(batch.layout));
  for (on.first = 0; on.first < all; on.first += on.pairs) {
    on.pairs = std::min(room, all - on.first);
    const cudaError_t error = launch(stream, AttendSplits{on}, MergeSplits{on});
    if (error != cudaSuccess) {
      return error;
    }
  }
  return cudaSuccess;
}

}  // namespace tandem::device::cuda
