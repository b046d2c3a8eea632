#include "cuda_kernels.h"

#include <algorithm>

#include "device/cuda/kernels/attention.h"
#include "device/cuda/kernels/products.h"
#include "device/cuda/kernels/rowwise.h"
#include "device/cuda/kernels/sample.h"

namespace tandem::kernels {
namespace {

namespace cuda = device::cuda;

template <class Kernel>
void run(const Kernel& kernel) {
  for (int64_t i = kernel.count() - 1; i >= 0; --i) {  // any order must do
    kernel(i);
  }
}

// The indices of some of a kernel's rows, which all have the same number of them.
template <class Kernel>
void run_rows(const Kernel& kernel, int64_t rows, int64_t begin, int64_t end) {
  const int64_t each = rows > 0 ? kernel.count() / rows : 0;
  for (int64_t i = end * each - 1; i >= begin * each; --i) {
    kernel(i);
  }
}

device::WeightMatrix weights(const PackedMatrix& matrix) {
  return {.data = matrix.data,
          .format = {.type = matrix.type},
          .n = matrix.n,
          .k = matrix.k,
          .stored_bytes = matrix.bytes()};
}

void pack(const PackArgs& args, int64_t panel_begin, int64_t panel_end) {
  device::UploadOp op{.source = args.source,
                      .source_type = args.source_type,
                      .n = args.n,
                      .k = args.k,
                      .target = weights(args.target),
                      .target_data = args.target_data,
                      .n_offset = args.n_offset};
  if (args.panel_step == 2) {  // gate and up
    op.part = args.n_offset == 0 ? device::WeightPart::kGate : device::WeightPart::kUp;
    op.n_offset = 0;
  }
  run(cuda::Upload{.op = op,
                   .source = args.source,
                   .source_row = 0,
                   .row_begin = panel_begin * kPanelColumns,
                   .row_count = (panel_end - panel_begin) * kPanelColumns});
}

void gemm(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* /*scratch*/) {
  const int64_t columns = (panel_end - panel_begin) * kPanelColumns;
  if (args.store == GemmStore::kSiluMul) {
    run(cuda::GateUp{{.x = args.x,
                      .x_type = args.w.type,
                      .x_stride = args.x_stride,
                      .rows = args.rows,
                      .w = weights(args.w),
                      .activated = args.activated,
                      .activated_stride = args.y_stride},
                     panel_begin / 2 * kPanelColumns,
                     columns / 2});
    return;
  }
  run(cuda::Gemm{{.x = args.x,
                  .x_type = args.w.type,
                  .x_stride = args.x_stride,
                  .rows = args.rows,
                  .w = weights(args.w),
                  .bias = args.bias,
                  .y = args.y,
                  .y_stride = args.y_stride,
                  .accumulate = args.store == GemmStore::kAdd},
                 panel_begin * kPanelColumns,
                 columns});
}

void embed(const EmbedArgs& args, int64_t begin, int64_t end) {
  run_rows(cuda::Embed{{.ids = args.ids,
                        .rows = args.rows,
                        .table = weights(args.table),
                        .y = args.y,
                        .y_stride = args.y_stride}},
           args.rows, begin, end);
}

void rms_norm(const RmsNormArgs& args, int64_t begin, int64_t end) {
  run_rows(cuda::RmsNorm{{.x = args.x,
                          .x_stride = args.x_stride,
                          .rows = args.rows,
                          .hidden = args.hidden,
                          .weight = args.weight,
                          .epsilon = args.epsilon,
                          .y = args.y,
                          .y_type = args.y_type,
                          .y_stride = args.y_stride}},
           args.rows, begin, end);
}

void rope_table(const RopeTableArgs& args, int64_t begin, int64_t end) {
  run_rows(cuda::RopeTable{args}, args.rows, begin, end);
}

void rope_write(const RopeWriteArgs& args, int64_t begin, int64_t end) {
  run_rows(cuda::RopeWrite{args}, args.rows, begin, end);
}

void rope_route(const RopeRouteArgs& args, int64_t begin, int64_t end) {
  run_rows(cuda::RopeRoute{args}, args.rows, begin, end);
  run_rows(cuda::StoreResiduals{args}, args.rows, begin, end);
}

void tail_gather(const TailGatherArgs& args, int64_t begin, int64_t end) {
  run_rows(cuda::GatherAttended{args}, args.rows, begin, end);
  run_rows(cuda::GatherResiduals{args}, args.rows, begin, end);
}

void row_gather(const RowGatherArgs& args, int64_t begin, int64_t end) {
  run_rows(cuda::RowGather{args}, args.count, begin, end);
}

void sample(const SampleArgs& args, int64_t begin, int64_t end) {
  run_rows(cuda::AddBiases{args}, args.row_count, begin, end);
  run_rows(cuda::Ban{args}, args.row_count, begin, end);
  run_rows(cuda::PenalizeRepetition{args}, args.row_count, begin, end);
  run_rows(cuda::PenalizeCounts{args}, args.row_count, begin, end);
  run_rows(cuda::Draw{args}, args.row_count, begin, end);
}

int64_t attend_scratch_bytes(const AttentionArgs& args) {
  const int64_t splits = kSplitTokens;  // contexts of up to 65536 tokens
  return splits * cuda::record_floats(args.layout) * static_cast<int64_t>(sizeof(float));
}

// Tasks that cover a context take the way of the op; of divided ones only the records are made.
void attend_row(const AttentionArgs& args, const AttentionTask& task, int64_t row, int64_t head,
                float* scratch) {
  const AttentionSlice& slice = args.slices[task.slice];
  const TokenRange context = row_tokens(args, slice, row);
  if (task.partial_offset < 0) {
    cuda::AttentionPairs on{
        .args = args, .q = args.q, .first = row * args.heads + head, .pairs = 1};
    on.splits = cuda::most_splits(context.end, args.window);
    on.args.partials = scratch;
    run(cuda::AttendSplits{on});
    run(cuda::MergeSplits{on});
    return;
  }
  const int64_t group = query_group(args);
  for (int64_t s = 0; s < task.split_count; ++s) {
    const TokenRange tokens = in_split(context, task.split_begin + s);
    if (!tokens.empty()) {
      float* record = args.partials + task.partial_offset + s * split_floats(args, task.row_count);
      const int64_t pair = (row - task.row_begin) * group + head % group;
      cuda::attend_split(args,
                         {.slice = slice,
                          .first = (task.split_begin + s) * kSplitTokens,
                          .range = tokens,
                          .kv_head = task.kv_head},
                         args.q + (row * args.heads + head) * args.layout.padded_head_dim,
                         record + pair * partial_record_floats(args.layout), scratch);
    }
  }
}

void attend(const AttentionArgs& args, std::span<const AttentionTask> tasks, void* scratch) {
  const int64_t group = query_group(args);
  for (const AttentionTask& task : tasks) {
    for (int64_t row = task.row_begin; row < task.row_begin + task.row_count; ++row) {
      for (int64_t head = task.kv_head * group; head < (task.kv_head + 1) * group; ++head) {
        attend_row(args, task, row, head, static_cast<float*>(scratch));
      }
    }
  }
}

}  // namespace

void cuda_cast(const CastArgs& args, int64_t row_begin, int64_t row_end) {
  run_rows(cuda::Cast{args}, args.rows, row_begin, row_end);
}

const Kernels& cuda_kernels() {
  static const Kernels kTable = [] {
    Kernels table = *kernels_for(Isa::kRef).value();
    table.name = "cuda";
    table.attend_scratch_bytes = attend_scratch_bytes;
    table.pack = pack;
    table.gemm = gemm;
    table.embed = embed;
    table.rms_norm = rms_norm;
    table.rope_table = rope_table;
    table.rope_write = rope_write;
    table.rope_route = rope_route;
    table.tail_gather = tail_gather;
    table.attend = attend;
    table.row_gather = row_gather;
    table.sample = sample;
    return table;
  }();
  return kTable;
}

}  // namespace tandem::kernels
