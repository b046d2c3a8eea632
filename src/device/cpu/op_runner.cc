#include "device/cpu/op_runner.h"

#include <algorithm>
#include <cstring>
#include <variant>

#include "base/check.h"
#include "device/cpu/host_formats.h"

namespace tandem::device {
namespace {

// Guesses of one thread's speed. They only decide where dividing pays, so a factor of two does not
// matter.
constexpr double kBytesPerNano = 12.0;
constexpr double kPreparedPerNano = 3.0;  // elements that are rounded or summed
constexpr double kRowBytesPerNano = 4.0;  // row-wise kernels: arithmetic beside the bytes
constexpr double kMatrixFlopsPerNano = 1500.0;
constexpr double kPairFlopsPerNano = 300.0;
constexpr double kVectorFlopsPerNano = 80.0;
constexpr double kReferenceFlopsPerNano = 1.0;
// A fork and join costs a few microseconds, more when workers sleep.
constexpr double kInlineNanos = 8000.0;
constexpr double kChunkNanos = 3000.0;
constexpr int64_t kCopyPieceBytes = int64_t{256} << 10;

double as_double(int64_t x) { return static_cast<double>(x); }

double flops_per_nano(kernels::Isa isa, ElementType type,
                      Quantization quantization = Quantization::kNone) {
  if (isa == kernels::Isa::kRef) {
    return kReferenceFlopsPerNano;
  }
  if (type != ElementType::kBF16) {
    return kVectorFlopsPerNano;
  }
  if (isa == kernels::Isa::kAmx && quantization != Quantization::kNone) {
    return kPairFlopsPerNano;
  }
  return isa == kernels::Isa::kAmx          ? kMatrixFlopsPerNano
         : isa == kernels::Isa::kAvx512Bf16 ? kPairFlopsPerNano
                                            : kVectorFlopsPerNano;
}

// Without the operands that differ from layer to layer.
kernels::AttentionArgs kernel_args(const AttentionBatch& batch) {
  kernels::AttentionArgs args;
  args.layout = batch.layout;
  args.heads = batch.heads;
  args.window = batch.window;
  args.slices = batch.slices;
  args.slice_count = batch.shape.slices;
  args.partials = batch.workspace;
  args.partial_floats = batch.workspace_floats;
  return args;
}

// The product of an op, without what becomes of it.
template <class Op>
kernels::GemmArgs product_of(const Op& op) {
  CHECK(op.x_type == op.w.format.type, "a product of {} with weights of {}",
        element_name(op.x_type), element_name(op.w.format.type));
  kernels::GemmArgs args;
  args.x = op.x;
  args.x_stride = op.x_stride;
  args.rows = op.rows;
  args.w = packed(op.w);
  return args;
}

}  // namespace

template <class Part>
void OpRunner::divide(const Work& work, const Part& part) {
  if (work.units <= 0) {
    return;
  }
  const int64_t worthwhile = static_cast<int64_t>(work.nanos / kChunkNanos);
  const int64_t chunks = std::min(
      {work.units, pool_.threads() * work.chunks_per_thread, std::max<int64_t>(worthwhile, 1)});
  if (pool_.threads() == 1 || chunks == 1 || work.nanos < kInlineNanos) {
    part(int64_t{0}, work.units, scratch_.require(work.scratch_bytes));
    return;
  }
  struct Context {
    const Part& part;
    int64_t units;
    int64_t chunks;
  };
  const Context context{part, work.units, chunks};
  const auto run_chunk = [](const void* raw, int64_t chunk, void* scratch) {
    const auto& own = *static_cast<const Context*>(raw);
    // units and chunks are far below 2^31 each, so the products cannot overflow.
    own.part(chunk * own.units / own.chunks, (chunk + 1) * own.units / own.chunks, scratch);
  };
  pool_.run(desk_,
            {.run = run_chunk,
             .context = &context,
             .chunks = chunks,
             .scratch_bytes = work.scratch_bytes,
             .order = work.order},
            scratch_);
}

template <>
void OpRunner::run_one(const CopyOp& copy) {
  auto* target = static_cast<std::byte*>(copy.target);
  const auto* source = static_cast<const std::byte*>(copy.source);
  const int64_t pieces = (copy.bytes + kCopyPieceBytes - 1) / kCopyPieceBytes;
  divide({.units = pieces, .nanos = as_double(copy.bytes) / kBytesPerNano},
         [&](int64_t begin, int64_t end, void*) {
           const int64_t from = begin * kCopyPieceBytes;
           const int64_t to = std::min(end * kCopyPieceBytes, copy.bytes);
           std::memcpy(target + from, source + from, static_cast<size_t>(to - from));
         });
}

// Both tiers have the host's arrangement.
template <>
void OpRunner::run_one(const KvMoveOp& op) {
  run_one(op.copy);
}

template <>
void OpRunner::run_one(const UploadOp& op) {
  const kernels::PackArgs args = pack_args(op);
  const int64_t panels = args.n.padded() / kernels::kPanelColumns;
  divide({.units = panels, .nanos = as_double(args.n.padded() * args.k.padded())},
         [&](int64_t begin, int64_t end, void*) { kernels_.pack(args, begin, end); });
}

template <>
void OpRunner::run_one(const EmbedOp& op) {
  CHECK(op.y_type == ElementType::kF32, "an embedding in {}", element_name(op.y_type));
  const kernels::EmbedArgs args{.ids = op.ids,
                                .rows = op.rows,
                                .table = packed(op.table),
                                .y = static_cast<float*>(op.y),
                                .y_stride = op.y_stride};
  divide_rows(args.rows, as_double(args.y_stride) * 4 / kRowBytesPerNano,
              [&](int64_t begin, int64_t end) { kernels_.embed(args, begin, end); });
}

template <>
void OpRunner::run_one(const RmsNormOp& op) {
  CHECK(op.x_type == ElementType::kF32, "a norm of {}", element_name(op.x_type));
  const kernels::RmsNormArgs args{.x = static_cast<const float*>(op.x),
                                  .x_stride = op.x_stride,
                                  .rows = op.rows,
                                  .hidden = op.hidden,
                                  .weight = op.weight,
                                  .epsilon = op.epsilon,
                                  .y = op.y,
                                  .y_type = op.y_type,
                                  .y_stride = op.y_stride};
  divide_rows(args.rows, as_double(args.y_stride) * 6 / kRowBytesPerNano,
              [&](int64_t begin, int64_t end) { kernels_.rms_norm(args, begin, end); });
}

void OpRunner::multiply(kernels::GemmArgs args) {
  const kernels::Kernels& own = set_.for_rows(args.rows);
  const double flops = 2.0 * as_double(args.rows) * as_double(args.w.n) * as_double(args.w.k);
  const double nanos = std::max(as_double(args.w.bytes()) / kBytesPerNano,
                                flops / flops_per_nano(own.isa, args.w.type, args.w.quantization));
  if (args.rows <= 0) {
    return;
  }
  const int64_t shared = own.prepared_bytes(args);
  if (shared > 0) {
    void* prepared = prepared_.require(shared);
    divide_rows(args.rows, as_double(args.w.k) / kPreparedPerNano,
                [&](int64_t begin, int64_t end) { own.prepare(args, begin, end, prepared); });
    args.prepared = prepared;
  }
  divide({.units = args.w.panels() / args.panel_unit(),
          .nanos = nanos,
          .scratch_bytes = own.gemm_scratch_bytes(args),
          .chunks_per_thread = args.rows < kManyRows ? kChunksPerThread : kManyRowsChunksPerThread,
          .order = ChunkOrder::kOwnNodeFirst},
         [&](int64_t begin, int64_t end, void* scratch) {
           own.gemm(args, begin * args.panel_unit(), end * args.panel_unit(), scratch);
         });
}

template <>
void OpRunner::run_one(const GemmOp& op) {
  CHECK(op.y_type == ElementType::kF32, "a product in {}", element_name(op.y_type));
  kernels::GemmArgs args = product_of(op);
  args.bias = op.bias;
  args.y = static_cast<float*>(op.y);
  args.y_stride = op.y_stride;
  args.store = op.accumulate ? kernels::GemmStore::kAdd : kernels::GemmStore::kWrite;
  multiply(args);
}

// One pass: the panels of gate and up alternate.
template <>
void OpRunner::run_one(const GateUpOp& op) {
  kernels::GemmArgs args = product_of(op);
  args.y_stride = op.activated_stride;
  args.store = kernels::GemmStore::kSiluMul;
  args.activated = op.activated;
  multiply(args);
}

template <>
void OpRunner::run_one(const RopeTableOp& args) {
  constexpr double kNanosPerSine = 40.0;
  divide_rows(args.rows, as_double(args.half_dim) * kNanosPerSine,
              [&](int64_t begin, int64_t end) { kernels_.rope_table(args, begin, end); });
}

template <>
void OpRunner::run_one(const RopeWriteOp& args) {
  CHECK(args.q_type == ElementType::kF32, "queries in {} on CPUs", element_name(args.q_type));
  divide_rows(args.rows, as_double(args.qkv_stride) * 8 / kRowBytesPerNano,
              [&](int64_t begin, int64_t end) { kernels_.rope_write(args, begin, end); });
}

template <>
void OpRunner::run_one(const AttentionPlanOp& op) {
  CHECK(op.batch.plan >= 0 && op.batch.plan < kAttentionPlans, "plan {} of attention",
        op.batch.plan);
  const AttentionBatch& batch = op.batch;
  PlannedAttention& planned = attention_.at(static_cast<size_t>(batch.plan));
  planned.batch = batch;
  kernels::AttentionArgs args = kernel_args(batch);
  args.slices = batch.host_slices;
  kernels::plan_attention(args, pool_.threads(), planned.plan);
  double flops = 0;
  for (int32_t i = 0; i < args.slice_count; ++i) {
    const kernels::AttentionSlice& slice = args.slices[i];
    const int64_t context = int64_t{slice.first_position} + slice.row_count;
    flops += as_double(slice.row_count) *
             as_double(args.window > 0 ? std::min<int64_t>(context, args.window) : context);
  }
  flops *= 4.0 * args.heads * args.layout.padded_head_dim;
  planned.nanos = flops / (flops_per_nano(kernels_.isa, ElementType::kF32) / 4);
}

template <>
void OpRunner::run_one(const AttentionOp& op) {
  const AttentionBatch& batch = op.batch;
  if (batch.shape.slices <= 0) {
    return;
  }
  const PlannedAttention& planned = attention_.at(static_cast<size_t>(batch.plan));
  CHECK(planned.batch.slices == batch.slices && planned.batch.shape.slices == batch.shape.slices &&
            planned.batch.window == batch.window,
        "attention of {} slices, window {}, by the plan of {}, window {}", batch.shape.slices,
        batch.window, planned.batch.shape.slices, planned.batch.window);
  kernels::AttentionArgs args = kernel_args(batch);
  CHECK(op.q_type == ElementType::kF32, "queries in {} on CPUs", element_name(op.q_type));
  args.q = static_cast<const float*>(op.q);
  args.kv = op.kv;
  args.layer = op.layer;
  args.scale = op.scale;
  args.out = op.out;
  args.out_stride = op.out_stride;
  args.out_type = op.out_type;
  const kernels::AttentionPlan& plan = planned.plan;
  divide({.units = static_cast<int64_t>(plan.run_ends.size()),
          .nanos = planned.nanos,
          .scratch_bytes = kernels_.attend_scratch_bytes(args),
          .chunks_per_thread = kUnequalChunksPerThread},
         [&](int64_t begin, int64_t end, void* scratch) {
           for (int64_t i = begin; i < end; ++i) {
             kernels_.attend(args, kernels::run_of(plan, static_cast<size_t>(i)), scratch);
           }
         });
  const auto merges = static_cast<int64_t>(plan.merges.size());
  divide_rows(merges,
              as_double(plan.partial_floats) * 4 / kRowBytesPerNano /
                  as_double(std::max<int64_t>(merges, 1)),
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  kernels::merge_splits(kernels_, args, plan.merges[static_cast<size_t>(i)]);
                }
              });
}

template <>
void OpRunner::run_one(const RowGatherOp& args) {
  divide_rows(args.count, as_double(args.stride) * 8 / kRowBytesPerNano,
              [&](int64_t begin, int64_t end) { kernels_.row_gather(args, begin, end); });
}

template <>
void OpRunner::run_one(const SampleOp& args) {
  divide_rows(args.row_count, as_double(args.vocabulary) * 4 / kRowBytesPerNano,
              [&](int64_t begin, int64_t end) { kernels_.sample(args, begin, end); });
}

template <>
void OpRunner::run_one(const RopeRouteOp& args) {
  divide_rows(args.rows, as_double(args.qkv_stride + args.residual_columns) * 8 / kRowBytesPerNano,
              [&](int64_t begin, int64_t end) { kernels_.rope_route(args, begin, end); });
}

template <>
void OpRunner::run_one(const TailGatherOp& args) {
  divide_rows(args.rows,
              as_double(args.attended_row_bytes + args.residual_columns * 4) / kRowBytesPerNano,
              [&](int64_t begin, int64_t end) { kernels_.tail_gather(args, begin, end); });
}

template <>
void OpRunner::run_one(const CastOp& args) {
  divide_rows(args.rows, as_double(args.columns) * 6 / kRowBytesPerNano,
              [&](int64_t begin, int64_t end) { kernels::cast(args, begin, end); });
}

// Behind the specialisations, which must be known here.
void OpRunner::run(const Op& op) {
  std::visit([this](const auto& any) { run_one(any); }, op);
}

}  // namespace tandem::device
