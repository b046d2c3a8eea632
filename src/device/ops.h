// The ops of a device: the argument struct of each, its name, and one description of its operands.
// Everything that is the same for all ops is derived from the descriptions: checks of addresses,
// labels in timelines, sums of times, what a hollow accelerator leaves, and what an op costs by
// default. Plain data; any thread.
//
// Where a CPU kernel takes an op's arguments as they are, the struct is the kernel's own
// (kernels/rowwise.h and its neighbours hold arguments only). A new op is a struct, an OpTraits
// and an entry in `Op`; docs/architecture.md lists the files ("Adding an op").
//
// Pointers are device addresses unless said otherwise. Arguments that change from step to step are
// read from memory, at addresses that do not change within a bucket of sizes (exec/batch_layout.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "base/element_type.h"
#include "kernels/attention.h"
#include "kernels/cast.h"
#include "kernels/gemm.h"
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
inline constexpr int32_t kAttentionPlans = 4;

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
  int64_t workspace_floats = 0;  // as Device says (attention_workspace_bytes) or fewer
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
  const float* q = nullptr;       // [rows, heads, padded_head_dim], after RoPE, not scaled
  const std::byte* kv = nullptr;  // the pool's start
  int32_t layer = 0;
  float scale = 0.0F;      // 1/sqrt(head_dim)
  void* out = nullptr;     // [rows, out_stride], type out_type; padding dims are zero
  int64_t out_stride = 0;  // in elements, >= heads * padded_head_dim
  ElementType out_type = ElementType::kBF16;
};

using PackOp = kernels::PackArgs;
using EmbedOp = kernels::EmbedArgs;
using RmsNormOp = kernels::RmsNormArgs;
using GemmOp = kernels::GemmArgs;
using RopeTableOp = kernels::RopeTableArgs;
using RopeWriteOp = kernels::RopeWriteArgs;
using RowGatherOp = kernels::RowGatherArgs;
using SampleOp = kernels::SampleArgs;
using RopeRouteOp = kernels::RopeRouteArgs;
using TailGatherOp = kernels::TailGatherArgs;
using CastOp = kernels::CastArgs;

using Op = std::variant<CopyOp, PackOp, EmbedOp, RmsNormOp, GemmOp, RopeTableOp, RopeWriteOp,
                        AttentionPlanOp, AttentionOp, RowGatherOp, SampleOp, RopeRouteOp,
                        TailGatherOp, CastOp>;

// ---------------------------------------------------------------- operands

enum class Access : uint8_t {
  kRead,
  kWrite,    // what was there before does not matter
  kUpdate,   // read and written
  kScratch,  // read, and of no use afterwards
};

enum class Place : uint8_t {
  kDevice,
  kWeights,   // device memory too, but a device that computes nothing needs none of it
  kAnywhere,  // also memory of neither tier: a loader's source, or what only the host reads
};

// Rows of equal width, a stride apart. Empty with no rows; one row where a kernel finds its rows by
// index: then the first must be there, and moved_bytes says how much is used.
struct Operand {
  const char* name = "";
  const void* data = nullptr;
  int64_t rows = 0;
  int64_t row_bytes = 0;
  int64_t stride_bytes = 0;
  Access access = Access::kRead;
  Place place = Place::kDevice;
  std::optional<ElementType> numbers = {};  // of a result of dense arithmetic: their type
  int64_t moved_bytes = 0;                  // read or written by the op

  // From the first row's start to the last one's end.
  [[nodiscard]] int64_t bytes() const {
    return rows <= 0 ? 0 : (rows - 1) * stride_bytes + row_bytes;
  }
  [[nodiscard]] Operand moving(int64_t bytes) const {
    Operand copy = *this;
    copy.moved_bytes = bytes;
    return copy;
  }
  [[nodiscard]] Operand at(Place where) const {
    Operand copy = *this;
    copy.place = where;
    return copy;
  }
  // Absent where the pointer is null.
  [[nodiscard]] Operand optional() const {
    Operand copy = *this;
    if (data == nullptr) {
      copy.rows = 0;
      copy.moved_bytes = 0;
    }
    return copy;
  }
};

// `count` values side by side.
template <class T>
Operand array(const char* name, const T* data, int64_t count, Access access = Access::kRead) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  return {.name = name,
          .data = data,
          .rows = count > 0 ? 1 : 0,
          .row_bytes = bytes,
          .stride_bytes = bytes,
          .access = access,
          .moved_bytes = bytes};
}

inline Operand bytes_at(const char* name, const void* data, int64_t bytes, Access access) {
  return array(name, static_cast<const std::byte*>(data), bytes, access);
}

struct Rows {
  int64_t count = 0;
  int64_t stride = 0;  // in elements
  int64_t columns = 0;
};

// A matrix of an op's numbers.
inline Operand matrix(const char* name, const void* data, ElementType type, const Rows& rows,
                      Access access = Access::kRead) {
  const int64_t element = element_bytes(type);
  return {.name = name,
          .data = data,
          .rows = rows.count,
          .row_bytes = rows.columns * element,
          .stride_bytes = rows.stride * element,
          .access = access,
          .numbers = access == Access::kWrite ? std::optional(type) : std::nullopt,
          .moved_bytes = std::max<int64_t>(rows.count, 0) * rows.columns * element};
}

inline Operand floats(const char* name, const float* data, const Rows& rows,
                      Access access = Access::kRead) {
  return matrix(name, data, ElementType::kF32, rows, access);
}

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
struct OpTraits<PackOp> {
  static constexpr OpInfo kInfo{"pack", "bytes"};
  static int64_t amount(const PackOp& op) { return op.target.bytes(); }
  template <class See>
  static void operands(const PackOp& op, See&& see) {
    const int64_t elements = op.n.logical * op.k.logical;
    see(bytes_at("source", op.source, elements * element_bytes(op.source_type), Access::kRead)
            .at(Place::kAnywhere));
    see(bytes_at("target", op.target_data, op.target.bytes(), Access::kWrite)
            .at(Place::kWeights)
            .moving(elements * element_bytes(op.target.type)));
  }
};

template <>
struct OpTraits<EmbedOp> {
  static constexpr OpInfo kInfo{"embed"};
  static int64_t amount(const EmbedOp& op) { return op.rows; }
  template <class See>
  static void operands(const EmbedOp& op, See&& see) {
    see(array("ids", op.ids, op.rows));
    see(bytes_at("table", op.table.data, op.table.bytes(), Access::kRead)
            .at(Place::kWeights)
            .moving(op.rows * op.table.k * element_bytes(op.table.type)));
    see(floats("y", op.y, {op.rows, op.y_stride, op.y_stride}, Access::kWrite));
  }
};

template <>
struct OpTraits<RmsNormOp> {
  static constexpr OpInfo kInfo{"rms_norm"};
  static int64_t amount(const RmsNormOp& op) { return op.rows; }
  template <class See>
  static void operands(const RmsNormOp& op, See&& see) {
    see(floats("x", op.x, {op.rows, op.x_stride, op.hidden}));
    see(array("weight", op.weight, op.rows > 0 ? op.hidden : 0).at(Place::kWeights));
    see(matrix("y", op.y, op.y_type, {op.rows, op.y_stride, op.y_stride}, Access::kWrite));
  }
};

template <>
struct OpTraits<GemmOp> {
  static constexpr OpInfo kInfo{"gemm"};
  static int64_t amount(const GemmOp& op) { return op.rows; }
  template <class See>
  static void operands(const GemmOp& op, See&& see) {
    see(matrix("x", op.x, op.w.type, {op.rows, op.x_stride, op.w.k}));
    see(bytes_at("w", op.w.data, op.w.bytes(), Access::kRead).at(Place::kWeights));
    see(array("bias", op.bias, op.w.n).optional());
    if (op.store == kernels::GemmStore::kSiluMul) {
      see(matrix("activated", op.activated, op.w.type, {op.rows, op.y_stride, op.w.n / 2},
                 Access::kWrite));
    } else {
      see(floats("y", op.y, {op.rows, op.y_stride, op.w.n},
                 op.store == kernels::GemmStore::kAdd ? Access::kUpdate : Access::kWrite));
    }
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
    see(floats("q", op.q, {op.rows, columns, columns}, Access::kWrite));
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
    see(floats("q", op.q, {batch.shape.rows, columns, columns}));
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

// ---------------------------------------------------------------- what follows from them

// What an op is called in a timeline, and how large it is.
struct OpLabel {
  const char* name = "";
  const char* detail = nullptr;  // the unit of `value`
  int64_t value = 0;
};

inline OpLabel label_of(const Op& op) {
  return std::visit(
      []<class AnyOp>(const AnyOp& any) {
        constexpr OpInfo kInfo = OpTraits<AnyOp>::kInfo;
        return OpLabel{kInfo.name, kInfo.unit, OpTraits<AnyOp>::amount(any)};
      },
      op);
}

inline bool runs_on_hollow(const Op& op) {
  return std::visit(
      []<class AnyOp>(const AnyOp&) { return OpTraits<AnyOp>::kInfo.on_hollow == OnHollow::kRuns; },
      op);
}

template <class See>
void for_each_operand(const Op& op, See&& see) {
  std::visit([&]<class AnyOp>(const AnyOp& any) { OpTraits<AnyOp>::operands(any, see); }, op);
}

// Bytes that the op reads and writes.
inline int64_t moved_bytes(const Op& op) {
  int64_t bytes = 0;
  for_each_operand(op, [&](const Operand& operand) {
    const bool both = operand.access == Access::kUpdate || operand.access == Access::kScratch;
    bytes += operand.moved_bytes * (both ? 2 : 1);
  });
  return bytes;
}

}  // namespace tandem::device
