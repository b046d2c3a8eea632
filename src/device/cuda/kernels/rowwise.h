// Norms, embeddings, RoPE with the KV write or the route to the other tier, gathers and casts: see
// elements.h for what a kernel is and kernels/rowwise.h for what each computes.
#pragma once

#include <cmath>
#include <cstddef>
#include <tuple>

#include "device/cuda/kernels/elements.h"
#include "device/ops.h"
#include "kernels/kv_layout.h"
#include "kernels/routed_row.h"
#include "kernels/rowwise.h"

namespace tandem::device::cuda {

struct Embed {
  EmbedOp op;  // the table is row-major [n, k]
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return op.rows * op.table.k; }
  TANDEM_ANYWHERE void operator()(int64_t i) const {
    const int64_t row = i / op.table.k;
    const int64_t column = i % op.table.k;
    store_element(
        op.y, op.y_type, row * op.y_stride + column,
        load_element(op.table.data, op.table.format.type, op.ids[row] * op.table.k + column));
  }
};

// 1 / the root mean square of x [count].
template <class Element>
TANDEM_ANYWHERE float rms_factor(const Element* x, int64_t count, float epsilon) {
  float squares = 0.0F;
  for (int64_t i = 0; i < count; ++i) {
    squares += widened(x[i]) * widened(x[i]);
  }
  return 1.0F / std::sqrt(squares / static_cast<float>(count) + epsilon);
}

// An index is a row.
struct RmsNorm {
  RmsNormOp op;
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return op.rows; }
  TANDEM_ANYWHERE void operator()(int64_t row) const {
    with_elements(op.x, op.x_type, [&](const auto* all_x) {
      const auto* x = all_x + row * op.x_stride;
      const float factor = rms_factor(x, op.hidden, op.epsilon);
      for (int64_t i = 0; i < op.y_stride; ++i) {
        store_element(op.y, op.y_type, row * op.y_stride + i,
                      i < op.hidden ? widened(x[i]) * factor * op.weight[i] : 0.0F);
      }
    });
  }
};

struct RopeTable {
  kernels::RopeTableArgs args;
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return args.rows * args.half_dim; }
  TANDEM_ANYWHERE void operator()(int64_t i) const {
    const double position = args.positions[i / args.half_dim];
    const double angle = position * args.inverse_frequency[i % args.half_dim];
    const double factor = args.attention_factor;
    args.cos[i] = static_cast<float>(std::cos(angle) * factor);
    args.sin[i] = static_cast<float>(std::sin(angle) * factor);
  }
};

// A head of q, k or v in one row of a QKV product.
template <class Args>
struct RopeHead {
  const float* x = nullptr;       // [head_dim]
  const float* weight = nullptr;  // of its norm, or null
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t head_dim = 0;
  float factor = 1.0F;
  bool rotates = true;  // false: v

  // `part`: 0 .. heads-1 is q, then kv_heads of k, then of v.
  TANDEM_ANYWHERE RopeHead(const Args& args, int64_t row, int64_t part)
      : x(args.qkv + row * args.qkv_stride + part * args.layout.padded_head_dim),
        cos(args.cos + row * (args.layout.head_dim / 2)),
        sin(args.sin + row * (args.layout.head_dim / 2)),
        head_dim(args.layout.head_dim),
        rotates(part < args.heads + args.layout.kv_heads) {
    if (rotates) {
      weight = part < args.heads ? args.q_norm : args.k_norm;
    }
    if (weight != nullptr) {
      factor = rms_factor(x, head_dim, args.norm_epsilon);
    }
  }

  [[nodiscard]] TANDEM_ANYWHERE float normed(int64_t dim) const {
    return weight == nullptr ? x[dim] : x[dim] * factor * weight[dim];
  }
  // What the head becomes; padding is zero.
  [[nodiscard]] TANDEM_ANYWHERE float operator[](int64_t dim) const {
    const int64_t half = head_dim / 2;
    if (dim >= head_dim) {
      return 0.0F;
    }
    if (!rotates) {
      return x[dim];
    }
    return dim < half ? normed(dim) * cos[dim] - normed(dim + half) * sin[dim]
                      : normed(dim) * cos[dim - half] + normed(dim - half) * sin[dim - half];
  }
};

// An index is a head of a row, of q, k or v.
struct RopeWrite {
  kernels::RopeWriteArgs args;
  [[nodiscard]] TANDEM_ANYWHERE int64_t parts() const {
    return args.heads + 2 * args.layout.kv_heads;
  }
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return args.rows * parts(); }
  TANDEM_ANYWHERE void operator()(int64_t i) const {
    const kernels::KvLayout& layout = args.layout;
    const int64_t width = layout.padded_head_dim;
    const int64_t row = i / parts();
    const int64_t part = i % parts();
    const RopeHead<kernels::RopeWriteArgs> head(args, row, part);
    if (part < args.heads) {
      for (int64_t dim = 0; dim < width; ++dim) {
        store_element(args.q, args.q_type, (row * args.heads + part) * width + dim, head[dim]);
      }
      return;
    }
    const int64_t block = args.blocks[row];
    const int64_t slot = args.slots[row];
    const bool is_key = part < args.heads + layout.kv_heads;
    const int64_t kv_head = part - args.heads - (is_key ? 0 : layout.kv_heads);
    std::byte* to = args.kv + (is_key ? layout.key_offset(block, args.layer, kv_head)
                                      : layout.value_offset(block, args.layer, kv_head));
    for (int64_t dim = 0; dim < width; ++dim) {
      store_element(to, layout.type,
                    is_key ? layout.key_element(slot, dim) : layout.value_element(slot, dim),
                    head[dim]);
    }
  }
};

// An index is a head of a row, of q, k or v; StoreResiduals does the op's other half.
struct RopeRoute {
  kernels::RopeRouteArgs args;
  [[nodiscard]] TANDEM_ANYWHERE int64_t parts() const {
    return args.heads + 2 * args.layout.kv_heads;
  }
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return args.rows * parts(); }
  TANDEM_ANYWHERE void operator()(int64_t i) const {
    const int64_t width = args.layout.padded_head_dim;
    const int64_t row = i / parts();
    const int64_t part = i % parts();
    const kernels::RoutedRow routed(args.layout, args.heads);
    const RopeHead<kernels::RopeRouteArgs> head(args, row, part);
    std::byte* to = args.ring + args.ring_rows[row] * routed.bytes();
    ElementType type = args.layout.type;
    int64_t first = 0;  // element of the part where the head begins
    if (part < args.heads) {
      type = ElementType::kF32;
      first = part * width;
    } else if (part < args.heads + args.layout.kv_heads) {
      to += routed.key_offset();
      first = (part - args.heads) * width;
    } else {
      to += routed.value_offset();
      first = (part - args.heads - args.layout.kv_heads) * width;
    }
    for (int64_t dim = 0; dim < width; ++dim) {
      store_element(to, type, first + dim, head[dim]);
    }
  }
};

struct StoreResiduals {
  kernels::RopeRouteArgs args;
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return args.rows * args.residual_columns; }
  TANDEM_ANYWHERE void operator()(int64_t i) const {
    const int64_t row = i / args.residual_columns;
    const int64_t column = i % args.residual_columns;
    args.residual_store[args.residual_slots[row] * args.store_stride + column] =
        args.residual[row * args.residual_stride + column];
  }
};

// The two halves of TailGatherOp; each has nothing to do where its target is null.
struct GatherAttended {
  kernels::TailGatherArgs args;
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const {
    return args.attended == nullptr ? 0 : args.rows * args.attended_row_bytes;
  }
  TANDEM_ANYWHERE void operator()(int64_t i) const {
    const int64_t row = i / args.attended_row_bytes;
    const int64_t byte = i % args.attended_row_bytes;
    args.attended[row * args.attended_pitch_bytes + byte] =
        args.returns[args.return_rows[row] * args.attended_row_bytes + byte];
  }
};

struct GatherResiduals {
  kernels::TailGatherArgs args;
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const {
    return args.residual == nullptr ? 0 : args.rows * args.residual_columns;
  }
  TANDEM_ANYWHERE void operator()(int64_t i) const {
    const int64_t row = i / args.residual_columns;
    const int64_t column = i % args.residual_columns;
    args.residual[row * args.residual_stride + column] =
        args.residual_store[args.residual_slots[row] * args.store_stride + column];
  }
};

struct RowGather {
  kernels::RowGatherArgs args;
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return args.count * args.stride; }
  TANDEM_ANYWHERE void operator()(int64_t i) const {
    args.y[i] = args.x[args.rows[i / args.stride] * args.stride + i % args.stride];
  }
};

struct Cast {
  kernels::CastArgs args;
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return args.rows * args.columns; }
  TANDEM_ANYWHERE void operator()(int64_t i) const {
    const int64_t row = i / args.columns;
    const int64_t column = i % args.columns;
    store_element(args.y, args.y_type, row * args.y_stride + column,
                  load_element(args.x, args.x_type, row * args.x_stride + column));
  }
};

inline auto kernels_of(const EmbedOp& op) { return std::tuple{Embed{op}}; }
inline auto kernels_of(const RmsNormOp& op) { return std::tuple{RmsNorm{op}}; }
inline auto kernels_of(const RopeTableOp& op) { return std::tuple{RopeTable{op}}; }
inline auto kernels_of(const RopeWriteOp& op) { return std::tuple{RopeWrite{op}}; }
inline auto kernels_of(const RopeRouteOp& op) {
  return std::tuple{RopeRoute{op}, StoreResiduals{op}};
}
inline auto kernels_of(const TailGatherOp& op) {
  return std::tuple{GatherAttended{op}, GatherResiduals{op}};
}
inline auto kernels_of(const RowGatherOp& op) { return std::tuple{RowGather{op}}; }
inline auto kernels_of(const CastOp& op) { return std::tuple{Cast{op}}; }

}  // namespace tandem::device::cuda
