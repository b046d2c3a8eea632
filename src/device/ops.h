// The ops of a device: the argument struct of each, its name, and one description of its operands.
// Everything that is the same for all ops is derived from the descriptions (op_queries.h):
// checks of addresses, labels in timelines, sums of times, what a hollow accelerator leaves, and
// what an op costs by default. Plain data; any thread.
//
// Where a CPU kernel takes an op's arguments as they are, the struct is the kernel's own
// (kernels/rowwise.h and its neighbours hold arguments only). A new op is a struct, an OpTraits
// and an entry in `Op`; docs/design/adding.md lists the files ("Adding an op").
//
// Pointers are device addresses unless said otherwise. Arguments that change from step to step are
// read from memory, at addresses that do not change within a bucket of sizes (exec/batch_layout.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "base/element_type.h"
#include "device/formats.h"
#include "device/operand.h"
#include "kernels/attention.h"
#include "kernels/cast.h"
#include "kernels/gemm.h"
#include "kernels/quantize.h"
#include "kernels/rowwise.h"
#include "kernels/sample.h"

namespace tandem::device {

// ---------------------------------------------------------------- the ops

// Copies `bytes` between two places, each of either kind of memory.
struct CopyOp {
  void* target = nullptr;
  const void* source = nullptr;
  int64_t bytes = 0;
};

// What the host knows of a step's attention when it lays the step out: a back end sizes grids and
// splits by it without reading device memory.
struct AttentionShape {
  int32_t rows = 0;
  int32_t slices = 0;
  int32_t max_context = 0;  // tokens that a row attends to, without a window
  int64_t splits = 0;       // sum over the slices of the splits of their longest row
};

// Plans of attention that a stream keeps at a time: one for each different window of a model.
inline constexpr int32_t kAttentionPlans = 8;

// The part of attention that is the same for all layers of a step with the same window.
struct AttentionBatch {
  const kernels::AttentionSlice* slices = nullptr;       // [shape.slices]
  const kernels::AttentionSlice* host_slices = nullptr;  // the same in host memory, as long as the
                                                         // step runs; tables are device addresses
  AttentionShape shape;
  kernels::KvLayout layout;
  int32_t heads = 0;   // a multiple of layout.kv_heads
  int32_t window = 0;  // tokens that a row attends to at most, its own included; 0: all
  float* workspace = nullptr;
  int64_t workspace_floats = 0;  // as Formats says, or fewer
  int32_t plan = 0;              // which of the stream's kAttentionPlans
};

// Divides a step's attention, once, before the AttentionOps of its layers on the same stream. The
// plan holds until another is made in its place.
struct AttentionPlanOp {
  AttentionBatch batch;
};

// Attention of decode rows and prefill chunks over the paged KV, as planned for an equal batch.
struct AttentionOp {
  AttentionBatch batch;
  const void* q = nullptr;                 // [rows, heads, padded_head_dim], after RoPE, not scaled
  ElementType q_type = ElementType::kF32;  // as Formats::query_type
  const std::byte* kv = nullptr;           // the pool's start
  int32_t layer = 0;
  float scale = 0.0F;      // 1/sqrt(head_dim)
  void* out = nullptr;     // [rows, out_stride], type out_type; padding dims are zero
  int64_t out_stride = 0;  // in elements, >= heads * padded_head_dim
  ElementType out_type = ElementType::kBF16;
};

// Moves whole K or V of heads of blocks between the pools of the tiers: `bytes` is a multiple of
// layout.head_bytes(). From the accelerator's arrangement to the host's or back; a copy if they are
// the same. The only way by which KV of the one becomes the other's.
struct KvMoveOp {
  CopyOp copy;
  kernels::KvLayout layout;  // of the host's pool
  bool to_host = false;      // the target is the host's
  // The head with which the move begins, of the 2 * layers * kv_heads of a block.
  int64_t first_head = 0;
};

enum class WeightPart : uint8_t {
  kRows,  // of a matrix, from n_offset on
  kGate,  // of a matrix of gate and up, whose arrangement is the back end's
  kUp,
};

// Stores rows of a checkpoint's matrix [n.logical, k.logical] (row-major, dense) in the back end's
// layout. The source may be any memory of this process. Padding is written as zeros, values round
// to nearest even, or as the quantisation of the target's format says (kernels/quantize.h).
struct UploadOp {
  const void* source = nullptr;
  ElementType source_type = ElementType::kBF16;  // unless it is quantised
  // Not kNone: the source is kernels::QuantizedGroup [n.logical, k.logical / 32] of this kind.
  Quantization source_quantization = Quantization::kNone;
  kernels::PaddedDim n;
  kernels::PaddedDim k;
  WeightMatrix target;
  void* target_data = nullptr;  // == target.data, writable
  WeightPart part = WeightPart::kRows;
  int64_t n_offset = 0;  // in the part; as n.padded() a multiple of 32
};

struct EmbedOp {
  const int32_t* ids = nullptr;  // [rows], each < table.n
  int64_t rows = 0;
  WeightMatrix table;  // row = token: n = vocabulary, k = hidden
  void* y = nullptr;   // [rows, y_stride], columns past the logical hidden are zero
  ElementType y_type = ElementType::kF32;  // as NumberTypes::residual
  int64_t y_stride = 0;
};

// The arguments of kernels::RmsNormArgs, but for the type of x.
struct RmsNormOp {
  const void* x = nullptr;                 // [rows, x_stride]
  ElementType x_type = ElementType::kF32;  // as NumberTypes::residual
  int64_t x_stride = 0;
  int64_t rows = 0;
  int64_t hidden = 0;             // logical width: the mean is over these
  const float* weight = nullptr;  // [hidden]
  float epsilon = 0.0F;
  void* y = nullptr;  // [rows, y_stride]; columns hidden .. y_stride-1 are written as zeros
  ElementType y_type = ElementType::kBF16;
  int64_t y_stride = 0;

  friend bool operator==(const RmsNormOp&, const RmsNormOp&) = default;
};

// y = x w^T + bias, or with `accumulate` y += x w^T + bias. A row of y depends on its row of x and
// on w alone.
struct GemmOp {
  const void* x = nullptr;  // [rows, x_stride >= w.k]; columns past the logical k hold zeros
  ElementType x_type = ElementType::kBF16;
  int64_t x_stride = 0;  // in elements
  int64_t rows = 0;
  WeightMatrix w;
  const float* bias = nullptr;  // [w.n] or null
  void* y = nullptr;            // [rows, y_stride >= w.n]
  // kF32, or with `accumulate` as NumberTypes::residual. Sums are fp32 and rounded once.
  ElementType y_type = ElementType::kF32;
  int64_t y_stride = 0;
  bool accumulate = false;

  friend bool operator==(const GemmOp&, const GemmOp&) = default;
};

// activated = silu(gate) * up, of the products of x with a matrix of both: uploaded as
// WeightPart::kGate and kUp. Whether that is one pass is the back end's business.
struct GateUpOp {
  const void* x = nullptr;  // as of GemmOp
  ElementType x_type = ElementType::kBF16;
  int64_t x_stride = 0;
  int64_t rows = 0;
  WeightMatrix w;             // n: twice the padded width of each
  void* activated = nullptr;  // [rows, activated_stride >= w.n / 2], type x_type
  int64_t activated_stride = 0;

  friend bool operator==(const GateUpOp&, const GateUpOp&) = default;
};

using RopeTableOp = kernels::RopeTableArgs;
using RopeWriteOp = kernels::RopeWriteArgs;
using RowGatherOp = kernels::RowGatherArgs;
using SampleOp = kernels::SampleArgs;
using RopeRouteOp = kernels::RopeRouteArgs;
using TailGatherOp = kernels::TailGatherArgs;
using CastOp = kernels::CastArgs;

using Op = std::variant<CopyOp, KvMoveOp, UploadOp, EmbedOp, RmsNormOp, GemmOp, GateUpOp,
                        RopeTableOp, RopeWriteOp, AttentionPlanOp, AttentionOp, RowGatherOp,
                        SampleOp, RopeRouteOp, TailGatherOp, CastOp>;

// ---------------------------------------------------------------- descriptions

enum class OnHollow : uint8_t {
  kStandsIn,  // a dense op: a hollow device leaves finite numbers and takes the time
  kRuns,      // moves rows or draws tokens: must really happen
};

struct OpInfo {
  const char* name = "";
  const char* unit = "rows";  // of amount()
  OnHollow on_hollow = OnHollow::kStandsIn;
};

// For each op: `kInfo`; `amount(op)`, how large it is, for timelines; and `operands(op, see)`,
// which calls see(const Operand&) for each operand.
template <class AnyOp>
struct OpTraits;

template <>
struct OpTraits<CopyOp> {
  static constexpr OpInfo kInfo{"copy", "bytes", OnHollow::kRuns};
  static int64_t amount(const CopyOp& op) { return op.bytes; }
  template <class See>
  static void operands(const CopyOp& op, See&& see) {
    see(bytes_at("target", op.target, op.bytes, Access::kWrite).at(Place::kAnywhere));
    see(bytes_at("source", op.source, op.bytes, Access::kRead).at(Place::kAnywhere));
  }
};

template <>
struct OpTraits<KvMoveOp> {
  static constexpr OpInfo kInfo{"kv_move", "bytes", OnHollow::kRuns};
  static int64_t amount(const KvMoveOp& op) { return op.copy.bytes; }
  template <class See>
  static void operands(const KvMoveOp& op, See&& see) {
    OpTraits<CopyOp>::operands(op.copy, see);
  }
};

template <>
struct OpTraits<UploadOp> {
  static constexpr OpInfo kInfo{"upload", "bytes"};
  static int64_t amount(const UploadOp& op) { return op.target.stored_bytes; }
  template <class See>
  static void operands(const UploadOp& op, See&& see) {
    const int64_t elements = op.n.logical * op.k.logical;
    const int64_t bytes = kernels::source_bytes(op.source_type, op.source_quantization, elements);
    see(bytes_at("source", op.source, bytes, Access::kRead).at(Place::kAnywhere));
    see(bytes_at("target", op.target_data, op.target.stored_bytes, Access::kWrite)
            .at(Place::kWeights)
            .moving(op.target.bytes_of(elements)));
  }
};

template <>
struct OpTraits<EmbedOp> {
  static constexpr OpInfo kInfo{"embed"};
  static int64_t amount(const EmbedOp& op) { return op.rows; }
  template <class See>
  static void operands(const EmbedOp& op, See&& see) {
    see(array("ids", op.ids, op.rows));
    see(bytes_at("table", op.table.data, op.table.stored_bytes, Access::kRead)
            .at(Place::kWeights)
            .moving(op.table.bytes_of(op.rows * op.table.k)));
    see(matrix("y", op.y, op.y_type, {op.rows, op.y_stride, op.y_stride}, Access::kWrite));
  }
};

template <>
struct OpTraits<RmsNormOp> {
  static constexpr OpInfo kInfo{"rms_norm"};
  static int64_t amount(const RmsNormOp& op) { return op.rows; }
  template <class See>
  static void operands(const RmsNormOp& op, See&& see) {
    see(matrix("x", op.x, op.x_type, {op.rows, op.x_stride, op.hidden}));
    see(array("weight", op.weight, op.rows > 0 ? op.hidden : 0).at(Place::kWeights));
    see(matrix("y", op.y, op.y_type, {op.rows, op.y_stride, op.y_stride}, Access::kWrite));
  }
};

// What products read, of GemmOp and GateUpOp.
template <class Product, class See>
void product_inputs(const Product& op, See&& see) {
  see(matrix("x", op.x, op.x_type, {op.rows, op.x_stride, op.w.k}));
  see(bytes_at("w", op.w.data, op.w.stored_bytes, Access::kRead).at(Place::kWeights));
}

template <>
struct OpTraits<GemmOp> {
  static constexpr OpInfo kInfo{"gemm"};
  static int64_t amount(const GemmOp& op) { return op.rows; }
  template <class See>
  static void operands(const GemmOp& op, See&& see) {
    product_inputs(op, see);
    see(array("bias", op.bias, op.w.n).optional());
    see(matrix("y", op.y, op.y_type, {op.rows, op.y_stride, op.w.n},
               op.accumulate ? Access::kUpdate : Access::kWrite));
  }
};

template <>
struct OpTraits<GateUpOp> {
  static constexpr OpInfo kInfo{"gate_up"};
  static int64_t amount(const GateUpOp& op) { return op.rows; }
  template <class See>
  static void operands(const GateUpOp& op, See&& see) {
    product_inputs(op, see);
    see(matrix("activated", op.activated, op.x_type, {op.rows, op.activated_stride, op.w.n / 2},
               Access::kWrite));
  }
};

template <>
struct OpTraits<RopeTableOp> {
  static constexpr OpInfo kInfo{"rope_table"};
  static int64_t amount(const RopeTableOp& op) { return op.rows; }
  template <class See>
  static void operands(const RopeTableOp& op, See&& see) {
    const Rows angles{op.rows, op.half_dim, op.half_dim};
    see(array("positions", op.positions, op.rows));
    see(array("inverse_frequency", op.inverse_frequency, op.half_dim));
    see(floats("cos", op.cos, angles, Access::kWrite));
    see(floats("sin", op.sin, angles, Access::kWrite));
  }
};

// What RoPE reads, of RopeWriteOp and RopeRouteOp.
template <class RopeOp, class See>
void rope_inputs(const RopeOp& op, See&& see) {
  const int64_t columns = int64_t{op.layout.padded_head_dim} * (op.heads + 2 * op.layout.kv_heads);
  const int64_t half_dim = op.layout.head_dim / 2;
  see(floats("qkv", op.qkv, {op.rows, op.qkv_stride, columns}));
  see(floats("cos", op.cos, {op.rows, half_dim, half_dim}));
  see(floats("sin", op.sin, {op.rows, half_dim, half_dim}));
  see(array("q_norm", op.q_norm, op.layout.head_dim).optional());
  see(array("k_norm", op.k_norm, op.layout.head_dim).optional());
}

template <>
struct OpTraits<RopeWriteOp> {
  static constexpr OpInfo kInfo{"rope_write"};
  static int64_t amount(const RopeWriteOp& op) { return op.rows; }
  template <class See>
  static void operands(const RopeWriteOp& op, See&& see) {
    const int64_t columns = int64_t{op.heads} * op.layout.padded_head_dim;
    const int64_t token_bytes =
        int64_t{2} * op.layout.kv_heads * op.layout.padded_head_dim * element_bytes(op.layout.type);
    rope_inputs(op, see);
    // A hollow device leaves the KV with the zeros that it was allocated with.
    see(bytes_at("kv", op.kv, op.layout.block_bytes(), Access::kUpdate)
            .moving(op.rows * token_bytes));
    see(array("blocks", op.blocks, op.rows));
    see(array("slots", op.slots, op.rows));
    see(matrix("q", op.q, op.q_type, {op.rows, columns, columns}, Access::kWrite));
  }
};

template <>
struct OpTraits<AttentionPlanOp> {
  static constexpr OpInfo kInfo{"attention_plan", "slices"};
  static int64_t amount(const AttentionPlanOp& op) { return op.batch.shape.slices; }
  // Planning is the host's work: it reads host memory, and moves nothing on the device.
  template <class See>
  static void operands(const AttentionPlanOp& op, See&& see) {
    see(array("host_slices", op.batch.host_slices, op.batch.shape.slices)
            .at(Place::kAnywhere)
            .moving(0));
  }
};

template <>
struct OpTraits<AttentionOp> {
  static constexpr OpInfo kInfo{"attention", "slices"};
  static int64_t amount(const AttentionOp& op) { return op.batch.shape.slices; }
  template <class See>
  static void operands(const AttentionOp& op, See&& see) {
    const AttentionBatch& batch = op.batch;
    const int64_t columns = int64_t{batch.heads} * batch.layout.padded_head_dim;
    see(matrix("q", op.q, op.q_type, {batch.shape.rows, columns, columns}));
    see(bytes_at("kv", op.kv, batch.layout.block_bytes(), Access::kRead));
    see(array("slices", batch.slices, batch.shape.slices));
    see(array("workspace", batch.workspace, batch.workspace_floats, Access::kUpdate));
    see(matrix("out", op.out, op.out_type, {batch.shape.rows, op.out_stride, columns},
               Access::kWrite));
  }
};

template <>
struct OpTraits<RowGatherOp> {
  static constexpr OpInfo kInfo{"row_gather"};
  static int64_t amount(const RowGatherOp& op) { return op.count; }
  template <class See>
  static void operands(const RowGatherOp& op, See&& see) {
    const Rows gathered{op.count, op.stride, op.stride};
    see(array("x", op.x, op.stride).moving(op.count * op.stride * int64_t{sizeof(float)}));
    see(array("rows", op.rows, op.count));
    see(floats("y", op.y, gathered, Access::kWrite));
  }
};

template <>
struct OpTraits<SampleOp> {
  static constexpr OpInfo kInfo{"sample", "rows", OnHollow::kRuns};
  static int64_t amount(const SampleOp& op) { return op.row_count; }
  template <class See>
  static void operands(const SampleOp& op, See&& see) {
    see(floats("logits", op.logits, {op.row_count, op.stride, op.vocabulary}, Access::kScratch));
    see(array("rows", op.rows, op.row_count));
    see(array("results", op.results, op.row_count, Access::kWrite));
    see(array("tokens", op.tokens, op.row_count, Access::kWrite).optional());
  }
};

template <>
struct OpTraits<RopeRouteOp> {
  static constexpr OpInfo kInfo{"rope_route", "rows", OnHollow::kRuns};
  static int64_t amount(const RopeRouteOp& op) { return op.rows; }
  template <class See>
  static void operands(const RopeRouteOp& op, See&& see) {
    if (op.rows <= 0) {
      return;
    }
    const int64_t routed = kernels::RoutedRow(op.layout, op.heads).bytes();
    const int64_t residual = op.residual_columns * int64_t{sizeof(float)};
    rope_inputs(op, see);
    see(bytes_at("ring", op.ring, routed, Access::kWrite).moving(op.rows * routed));
    see(array("ring_rows", op.ring_rows, op.rows));
    see(floats("residual", op.residual, {op.rows, op.residual_stride, op.residual_columns}));
    see(array("residual_store", op.residual_store, op.residual_columns, Access::kWrite)
            .moving(op.rows * residual));
    see(array("residual_slots", op.residual_slots, op.rows));
  }
};

template <>
struct OpTraits<TailGatherOp> {
  static constexpr OpInfo kInfo{"tail_gather", "rows", OnHollow::kRuns};
  static int64_t amount(const TailGatherOp& op) { return op.rows; }
  template <class See>
  static void operands(const TailGatherOp& op, See&& see) {
    if (op.attended != nullptr && op.rows > 0) {
      const Operand attended = {.name = "attended",
                                .data = op.attended,
                                .rows = op.rows,
                                .row_bytes = op.attended_row_bytes,
                                .stride_bytes = op.attended_pitch_bytes,
                                .access = Access::kWrite,
                                .moved_bytes = op.rows * op.attended_row_bytes};
      see(bytes_at("returns", op.returns, op.attended_row_bytes, Access::kRead)
              .moving(attended.moved_bytes));
      see(array("return_rows", op.return_rows, op.rows));
      see(attended);
    }
    if (op.residual != nullptr && op.rows > 0) {
      const Operand residual =
          floats("residual", op.residual, {op.rows, op.residual_stride, op.residual_columns},
                 Access::kWrite);
      see(array("residual_store", op.residual_store, op.residual_columns)
              .moving(residual.moved_bytes));
      see(array("residual_slots", op.residual_slots, op.rows));
      see(residual);
    }
  }
};

template <>
struct OpTraits<CastOp> {
  static constexpr OpInfo kInfo{"cast"};
  static int64_t amount(const CastOp& op) { return op.rows; }
  template <class See>
  static void operands(const CastOp& op, See&& see) {
    see(matrix("x", op.x, op.x_type, {op.rows, op.x_stride, op.columns}));
    see(matrix("y", op.y, op.y_type, {op.rows, op.y_stride, op.columns}, Access::kWrite));
  }
};

}  // namespace tandem::device
