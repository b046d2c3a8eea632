// Norms, RoPE with the KV write or the route to the other tier, and gathers, as plain loops.
#include <cmath>
#include <cstring>

#include "kernels/kv_store.h"
#include "kernels/ref/ref.h"
#include "kernels/rope_table.h"
#include "kernels/routed_rows.h"

namespace tandem::kernels::ref {

namespace {

void store(void* y, ElementType type, int64_t index, float value) {
  if (type == ElementType::kF32) {
    static_cast<float*>(y)[index] = value;
  } else {
    static_cast<BFloat16*>(y)[index] = f32_to_bf16(value);
  }
}

void rms_norm(const RmsNormArgs& args, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float* x = args.x + row * args.x_stride;
    float squares = 0.0F;
    for (int64_t i = 0; i < args.hidden; ++i) {
      squares += x[i] * x[i];
    }
    const float mean = squares / static_cast<float>(args.hidden);
    const float factor = 1.0F / std::sqrt(mean + args.epsilon);
    for (int64_t i = 0; i < args.y_stride; ++i) {
      const float value = i < args.hidden ? x[i] * factor * args.weight[i] : 0.0F;
      store(args.y, args.y_type, row * args.y_stride + i, value);
    }
  }
}

// The rotated value of dimension `dim` of a head.
float rotated(const float* x, const float* cos, const float* sin, int64_t half, int64_t dim) {
  if (dim < half) {
    return x[dim] * cos[dim] - x[dim + half] * sin[dim];
  }
  return x[dim] * cos[dim - half] + x[dim - half] * sin[dim - half];
}

// The head that is rotated: `x` [head_dim] itself, or its RMS norm, put into `room`.
const float* normed_head(const float* x, const float* weight, float epsilon, int64_t head_dim,
                         float* room) {
  if (weight == nullptr) {
    return x;
  }
  float squares = 0.0F;
  for (int64_t dim = 0; dim < head_dim; ++dim) {
    squares += x[dim] * x[dim];
  }
  const float mean = squares / static_cast<float>(head_dim);
  const float factor = 1.0F / std::sqrt(mean + epsilon);
  for (int64_t dim = 0; dim < head_dim; ++dim) {
    room[dim] = x[dim] * factor * weight[dim];
  }
  return room;
}

// One row of a QKV product and its angles: what its heads become.
template <class Args>
class RopeRow {
 public:
  RopeRow(const Args& args, int64_t row)
      : args_(args),
        half_(args.layout.head_dim / 2),
        width_(args.layout.padded_head_dim),
        cos_(args.cos + row * half_),
        sin_(args.sin + row * half_),
        qkv_(args.qkv + row * args.qkv_stride) {}

  void make_queries(float* q) const {
    for (int64_t head = 0; head < args_.heads; ++head) {
      rotate(qkv_ + head * width_, args_.q_norm, q + head * width_);
    }
  }
  // `elements` [padded_head_dim], of the KV's type
  void make_key(int64_t head, void* elements) const {
    float rotated_head[kMaxPaddedHeadDim];
    rotate(qkv_ + (args_.heads + head) * width_, args_.k_norm, rotated_head);
    for (int64_t dim = 0; dim < width_; ++dim) {
      store(elements, args_.layout.type, dim, rotated_head[dim]);
    }
  }
  void make_value(int64_t head, void* elements) const {
    const float* x = qkv_ + (args_.heads + args_.layout.kv_heads + head) * width_;
    for (int64_t dim = 0; dim < width_; ++dim) {
      store(elements, args_.layout.type, dim, dim < args_.layout.head_dim ? x[dim] : 0.0F);
    }
  }

 private:
  void rotate(const float* head, const float* weight, float* out) const {
    float room[kMaxPaddedHeadDim];
    const float* x = normed_head(head, weight, args_.norm_epsilon, args_.layout.head_dim, room);
    for (int64_t dim = 0; dim < width_; ++dim) {
      out[dim] = dim < args_.layout.head_dim ? rotated(x, cos_, sin_, half_, dim) : 0.0F;
    }
  }

  const Args& args_;
  const int64_t half_;
  const int64_t width_;
  const float* cos_;
  const float* sin_;
  const float* qkv_;
};

void rope_write(const RopeWriteArgs& args, int64_t row_begin, int64_t row_end) {
  const KvLayout& layout = args.layout;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const RopeRow<RopeWriteArgs> rope(args, row);
    rope.make_queries(static_cast<float*>(args.q) + row * args.heads * layout.padded_head_dim);
    alignas(64) std::byte elements[kMaxPaddedHeadDim * sizeof(float)];
    for (int64_t head = 0; head < layout.kv_heads; ++head) {
      const KvPlace place{args.kv, args.layer, args.blocks[row], args.slots[row]};
      rope.make_key(head, elements);
      store_key(layout, place, head, elements);
      rope.make_value(head, elements);
      store_value(layout, place, head, elements);
    }
  }
}

void rope_route(const RopeRouteArgs& args, int64_t row_begin, int64_t row_end) {
  const RoutedRow routed(args.layout, args.heads);
  const int64_t head_bytes = args.layout.padded_head_dim * element_bytes(args.layout.type);
  for (int64_t row = row_begin; row < row_end; ++row) {
    const RopeRow<RopeRouteArgs> rope(args, row);
    std::byte* to = args.ring + args.ring_rows[row] * routed.bytes();
    rope.make_queries(reinterpret_cast<float*>(to));
    for (int64_t head = 0; head < args.layout.kv_heads; ++head) {
      rope.make_key(head, to + routed.key_offset() + head * head_bytes);
      rope.make_value(head, to + routed.value_offset() + head * head_bytes);
    }
    for (int64_t i = 0; i < args.residual_columns; ++i) {
      args.residual_store[args.residual_slots[row] * args.store_stride + i] =
          args.residual[row * args.residual_stride + i];
    }
  }
}

void row_gather(const RowGatherArgs& args, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    std::memcpy(args.y + row * args.stride, args.x + args.rows[row] * args.stride,
                static_cast<size_t>(args.stride) * sizeof(float));
  }
}

}  // namespace

void fill_rowwise(Kernels& table) {
  table.rms_norm = rms_norm;
  table.rope_table = rope_table;
  table.rope_write = rope_write;
  table.rope_route = rope_route;
  table.tail_gather = tail_gather;
  table.kv_append = kv_append;
  table.row_gather = row_gather;
}

}  // namespace tandem::kernels::ref
