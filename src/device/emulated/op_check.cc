#include "device/emulated/op_check.h"

#include <variant>

#include "base/check.h"

namespace tandem::device {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kIndex = sizeof(int32_t);

class Checker {
 public:
  Checker(StreamKind kind, const Tiers& tiers) : kind_(kind), tiers_(tiers) {}

  void check(const CopyOp& copy) const {
    if (copy.bytes == 0) {
      return;
    }
    const CopyDirection direction = direction_of(copy, tiers_);
    const bool out = direction == CopyDirection::kDeviceToHost;
    const bool in = direction == CopyDirection::kHostToDevice;
    const bool right =
        kind_ == StreamKind::kCompute || (kind_ == StreamKind::kDeviceToHost && out) ||
        (kind_ == StreamKind::kHostToDevice && in) || (kind_ == StreamKind::kSwap && (out || in));
    CHECK(right, "a copy of {} bytes goes the wrong way ({}) for its stream (kind {})", copy.bytes,
          static_cast<int>(direction), static_cast<int>(kind_));
  }
  // A checkpoint's rows are read where the loader has them.
  void check(const kernels::PackArgs& args) const {
    weight("pack target", args.target_data, args.target.bytes());
  }
  void check(const kernels::EmbedArgs& args) const {
    on_device("embed ids", args.ids, args.rows * kIndex);
    weight("embed table", args.table.data, args.table.bytes());
    on_device("embed y", args.y, args.rows * args.y_stride * kFloat);
  }
  void check(const kernels::RmsNormArgs& args) const {
    on_device("rms_norm x", args.x, rows_bytes(args.rows, args.x_stride, args.hidden, kFloat));
    weight("rms_norm weight", args.weight, args.hidden * kFloat);
    on_device("rms_norm y", args.y, args.rows * args.y_stride * element_bytes(args.y_type));
  }
  void check(const kernels::GemmArgs& args) const {
    const int64_t element = element_bytes(args.w.type);
    on_device("gemm x", args.x, rows_bytes(args.rows, args.x_stride, args.w.k, element));
    weight("gemm w", args.w.data, args.w.bytes());
    optional("gemm bias", args.bias, args.w.n * kFloat);
    if (args.store == kernels::GemmStore::kSiluMul) {
      on_device("gemm activated", args.activated,
                rows_bytes(args.rows, args.y_stride, args.w.n / 2, element));
    } else {
      on_device("gemm y", args.y, rows_bytes(args.rows, args.y_stride, args.w.n, kFloat));
    }
  }
  void check(const kernels::RopeTableArgs& args) const {
    const int64_t bytes = args.rows * args.half_dim * kFloat;
    on_device("rope_table positions", args.positions, args.rows * kIndex);
    on_device("rope_table inverse_frequency", args.inverse_frequency,
              args.half_dim * static_cast<int64_t>(sizeof(double)));
    on_device("rope_table cos", args.cos, bytes);
    on_device("rope_table sin", args.sin, bytes);
  }
  void check(const kernels::RopeWriteArgs& args) const {
    heads("rope_write", args);
    on_device("rope_write kv", args.kv, args.layout.block_bytes());
    on_device("rope_write blocks", args.blocks, args.rows * kIndex);
    on_device("rope_write slots", args.slots, args.rows * kIndex);
    on_device("rope_write q", args.q,
              args.rows * args.heads * args.layout.padded_head_dim * kFloat);
  }
  void check(const AttentionOp& op) const {
    const kernels::AttentionArgs& args = op.args;
    on_device("attention q", args.q, int64_t{args.heads} * args.layout.padded_head_dim * kFloat);
    on_device("attention kv", args.kv, args.layout.block_bytes());
    on_device("attention slices", args.slices,
              args.slice_count * static_cast<int64_t>(sizeof(kernels::AttentionSlice)));
    on_device("attention out", args.out,
              int64_t{args.heads} * args.layout.padded_head_dim * element_bytes(args.out_type));
    if (args.partial_floats > 0) {
      on_device("attention partials", args.partials, args.partial_floats * kFloat);
    }
  }
  void check(const kernels::RowGatherArgs& args) const {
    on_device("row_gather x", args.x, args.stride * kFloat);
    on_device("row_gather rows", args.rows, args.count * kIndex);
    on_device("row_gather y", args.y, args.count * args.stride * kFloat);
  }
  void check(const kernels::SampleArgs& args) const {
    on_device("sample logits", args.logits,
              rows_bytes(args.row_count, args.stride, args.vocabulary, kFloat));
    on_device("sample rows", args.rows,
              args.row_count * static_cast<int64_t>(sizeof(kernels::SampleRow)));
    on_device("sample results", args.results,
              args.row_count * static_cast<int64_t>(sizeof(kernels::SampleResult)));
    if (args.tokens != nullptr) {
      on_device("sample tokens", args.tokens, args.row_count * kIndex);
    }
  }
  void check(const kernels::RopeRouteArgs& args) const {
    if (args.rows <= 0) {
      return;
    }
    heads("rope_route", args);
    on_device("rope_route ring", args.ring, kernels::RoutedRow(args.layout, args.heads).bytes());
    on_device("rope_route ring_rows", args.ring_rows, args.rows * kIndex);
    on_device("rope_route residual", args.residual,
              rows_bytes(args.rows, args.residual_stride, args.residual_columns, kFloat));
    on_device("rope_route residual_store", args.residual_store, args.residual_columns * kFloat);
    on_device("rope_route residual_slots", args.residual_slots, args.rows * kIndex);
  }
  void check(const kernels::TailGatherArgs& args) const {
    if (args.attended != nullptr && args.rows > 0) {
      on_device("tail_gather returns", args.returns, args.attended_row_bytes);
      on_device("tail_gather return_rows", args.return_rows, args.rows * kIndex);
      on_device("tail_gather attended", args.attended,
                rows_bytes(args.rows, args.attended_pitch_bytes, args.attended_row_bytes, 1));
    }
    if (args.residual != nullptr && args.rows > 0) {
      on_device("tail_gather residual_store", args.residual_store, args.residual_columns * kFloat);
      on_device("tail_gather residual_slots", args.residual_slots, args.rows * kIndex);
      on_device("tail_gather residual", args.residual,
                rows_bytes(args.rows, args.residual_stride, args.residual_columns, kFloat));
    }
  }

 private:
  // From the first row's start to the last one's end.
  static int64_t rows_bytes(int64_t rows, int64_t stride, int64_t columns, int64_t element) {
    return rows <= 0 ? 0 : ((rows - 1) * stride + columns) * element;
  }

  void on_device(const char* what, const void* data, int64_t bytes) const {
    CHECK(bytes <= 0 || tiers_.device.contains(data, bytes),
          "{}: {} bytes at {} do not lie in device memory", what, bytes, data);
  }
  void optional(const char* what, const void* data, int64_t bytes) const {
    if (data != nullptr) {
      on_device(what, data, bytes);
    }
  }
  void weight(const char* what, const void* data, int64_t bytes) const {
    if (data != nullptr || !tiers_.hollow) {
      on_device(what, data, bytes);
    }
  }
  template <class Args>
  void heads(const char* what, const Args& args) const {
    const int64_t columns =
        int64_t{args.layout.padded_head_dim} * (args.heads + 2 * args.layout.kv_heads);
    const int64_t angles = args.rows * (args.layout.head_dim / 2) * kFloat;
    on_device(what, args.qkv, rows_bytes(args.rows, args.qkv_stride, columns, kFloat));
    on_device(what, args.cos, angles);
    on_device(what, args.sin, angles);
    optional(what, args.q_norm, args.layout.head_dim * kFloat);
    optional(what, args.k_norm, args.layout.head_dim * kFloat);
  }

  const StreamKind kind_;
  const Tiers& tiers_;
};

}  // namespace

CopyDirection direction_of(const CopyOp& copy, const Tiers& tiers) {
  const bool to_device = tiers.device.contains(copy.target, copy.bytes);
  const bool to_host = tiers.host.contains(copy.target, copy.bytes);
  CHECK(to_device || to_host, "a copy of {} bytes to {}, which lies in no tier", copy.bytes,
        copy.target);
  if (tiers.device.contains(copy.source, copy.bytes)) {
    return to_device ? CopyDirection::kDeviceToDevice : CopyDirection::kDeviceToHost;
  }
  if (tiers.host.contains(copy.source, copy.bytes)) {
    return to_device ? CopyDirection::kHostToDevice : CopyDirection::kHostToHost;
  }
  CHECK(to_device, "a copy of {} bytes from {}, which lies in no tier, to the host", copy.bytes,
        copy.source);
  return CopyDirection::kPageableToDevice;
}

void check_op(const Op& op, StreamKind kind, const Tiers& tiers) {
  CHECK(kind == StreamKind::kCompute || std::holds_alternative<CopyOp>(op),
        "op {} on a stream of copies", op.index());
  const Checker checker(kind, tiers);
  std::visit([&](const auto& one) { checker.check(one); }, op);
}

}  // namespace tandem::device
