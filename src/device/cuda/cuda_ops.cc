#include "device/cuda/cuda_ops.h"

#include <algorithm>

#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/products.h"
#include "device/cuda/kernels/rowwise.h"
#include "device/cuda/kernels/sample.h"
#include "device/cuda/launch.h"

namespace tandem::device::cuda {

cudaError_t run(cudaStream_t stream, const EmbedOp& op) { return launch(stream, Embed{op}); }
cudaError_t run(cudaStream_t stream, const RmsNormOp& op) { return launch(stream, RmsNorm{op}); }
cudaError_t run(cudaStream_t stream, const GemmOp& op) {
  return launch(stream, Gemm{op, 0, op.w.n});
}
cudaError_t run(cudaStream_t stream, const GateUpOp& op) {
  return launch(stream, GateUp{op, 0, op.w.n / 2});
}
cudaError_t run(cudaStream_t stream, const RopeTableOp& op) {
  return launch(stream, RopeTable{op});
}
cudaError_t run(cudaStream_t stream, const RopeWriteOp& op) {
  return launch(stream, RopeWrite{op});
}
cudaError_t run(cudaStream_t stream, const RowGatherOp& op) {
  return launch(stream, RowGather{op});
}
cudaError_t run(cudaStream_t stream, const CastOp& op) { return launch(stream, Cast{op}); }

cudaError_t run(cudaStream_t stream, const GateUpOp& op, const GateUpRows& rows) {
  return launch(stream, SiluMul{op, {rows.sums, rows.begin, rows.count}});
}

cudaError_t run(cudaStream_t stream, const RopeRouteOp& op) {
  return launch(stream, RopeRoute{op}, StoreResiduals{op});
}

cudaError_t run(cudaStream_t stream, const TailGatherOp& op) {
  return launch(stream, GatherAttended{op}, GatherResiduals{op});
}

cudaError_t run(cudaStream_t stream, const SampleOp& op) {
  return launch(stream, AddBiases{op}, Ban{op}, PenalizeRepetition{op}, PenalizeCounts{op},
                Draw{op});
}

cudaError_t run(cudaStream_t stream, const UploadOp& op, const UploadRows& rows) {
  return launch(stream, Upload{.op = op,
                               .source = rows.source,
                               .source_row = rows.source_row,
                               .row_begin = rows.begin,
                               .row_count = rows.count});
}

int64_t attention_pair_bytes(const kernels::KvLayout& layout, int64_t context_tokens,
                             int64_t window) {
  return most_splits(context_tokens, window) * record_floats(layout) *
         static_cast<int64_t>(sizeof(float));
}

cudaError_t run(cudaStream_t stream, const AttentionOp& op) {
  const AttentionBatch& batch = op.batch;
  AttentionPairs on{.args = kernel_args(op)};
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
