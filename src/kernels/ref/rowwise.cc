// Norms, RoPE with the KV write, SiLU*mul and gathers, as plain loops.
#include <cmath>
#include <cstring>

#include "kernels/ref/ref.h"
#include "kernels/rope_table.h"

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
const float* normed_head(const float* x, const float* weight, const RopeWriteArgs& args,
                         float* room) {
  if (weight == nullptr) {
    return x;
  }
  float squares = 0.0F;
  for (int64_t dim = 0; dim < args.layout.head_dim; ++dim) {
    squares += x[dim] * x[dim];
  }
  const float mean = squares / static_cast<float>(args.layout.head_dim);
  const float factor = 1.0F / std::sqrt(mean + args.norm_epsilon);
  for (int64_t dim = 0; dim < args.layout.head_dim; ++dim) {
    room[dim] = x[dim] * factor * weight[dim];
  }
  return room;
}

void rope_write(const RopeWriteArgs& args, int64_t row_begin, int64_t row_end) {
  const KvLayout& layout = args.layout;
  const int64_t half = layout.head_dim / 2;
  const int64_t width = layout.padded_head_dim;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float* cos = args.cos + row * half;
    const float* sin = args.sin + row * half;
    const float* queries = args.qkv + row * args.qkv_stride;
    const float* keys = queries + args.heads * width;
    const float* values = keys + layout.kv_heads * width;
    float* q = args.q + row * args.heads * width;
    float room[kMaxPaddedHeadDim];
    for (int64_t head = 0; head < args.heads; ++head) {
      const float* x = normed_head(queries + head * width, args.q_norm, args, room);
      for (int64_t dim = 0; dim < width; ++dim) {
        q[head * width + dim] = dim < layout.head_dim ? rotated(x, cos, sin, half, dim) : 0.0F;
      }
    }
    const int64_t slot = args.slots[row];
    for (int64_t head = 0; head < layout.kv_heads; ++head) {
      std::byte* key = args.kv + layout.key_offset(args.blocks[row], args.layer, head);
      std::byte* value = args.kv + layout.value_offset(args.blocks[row], args.layer, head);
      const float* x = normed_head(keys + head * width, args.k_norm, args, room);
      for (int64_t dim = 0; dim < width; ++dim) {
        const bool real = dim < layout.head_dim;
        const float k = real ? rotated(x, cos, sin, half, dim) : 0.0F;
        const float v = real ? values[head * width + dim] : 0.0F;
        store(key, layout.type, layout.key_element(slot, dim), k);
        store(value, layout.type, layout.value_element(slot, dim), v);
      }
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
  table.row_gather = row_gather;
}

}  // namespace tandem::kernels::ref
