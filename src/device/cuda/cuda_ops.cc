#include "device/cuda/cuda_ops.h"

#include <algorithm>

#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/products.h"
#include "device/cuda/kernels/rowwise.h"
#include "device/cuda/kernels/sample.h"
#include "device/cuda/launch.h"

namespace tandem::device::cuda {

void run(cudaStream_t stream, const EmbedOp& op) { launch(stream, Embed{op}); }
void run(cudaStream_t stream, const RmsNormOp& op) { launch(stream, RmsNorm{op}); }
void run(cudaStream_t stream, const GemmOp& op) { launch(stream, Gemm{op, 0, op.w.n}); }
void run(cudaStream_t stream, const GateUpOp& op) { launch(stream, GateUp{op, 0, op.w.n / 2}); }
void run(cudaStream_t stream, const RopeTableOp& op) { launch(stream, RopeTable{op}); }
void run(cudaStream_t stream, const RopeWriteOp& op) { launch(stream, RopeWrite{op}); }
void run(cudaStream_t stream, const RowGatherOp& op) { launch(stream, RowGather{op}); }
void run(cudaStream_t stream, const CastOp& op) { launch(stream, Cast{op}); }

void run(cudaStream_t stream, const RopeRouteOp& op) {
  launch(stream, RopeRoute{op});
  launch(stream, StoreResiduals{op});
}

void run(cudaStream_t stream, const TailGatherOp& op) {
  launch(stream, GatherAttended{op});
  launch(stream, GatherResiduals{op});
}

void run(cudaStream_t stream, const SampleOp& op) {
  launch(stream, AddBiases{op});
  launch(stream, Ban{op});
  launch(stream, PenalizeRepetition{op});
  launch(stream, PenalizeCounts{op});
  launch(stream, Draw{op});
}

void run(cudaStream_t stream, const UploadOp& op, const UploadRows& rows) {
  launch(stream, Upload{.op = op,
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

void run(cudaStream_t stream, const AttentionOp& op) {
  const AttentionBatch& batch = op.batch;
  AttentionPairs on{.args = kernel_args(op)};
  on.args.partials = batch.workspace;
  on.splits = most_splits(batch.shape.max_context, batch.window);
  const int64_t all = int64_t{batch.shape.rows} * batch.heads;
  const int64_t room = batch.workspace_floats / (on.splits * record_floats(batch.layout));
  for (on.first = 0; on.first < all; on.first += on.pairs) {
    on.pairs = std::min(room, all - on.first);
    launch(stream, AttendSplits{on});
    launch(stream, MergeSplits{on});
  }
}

}  // namespace tandem::device::cuda
