// Norms, RoPE with the KV write and gathers, for every vector target.
#include <cmath>
#include <cstring>

#include "kernels/portable/portable.h"
#include "kernels/rope_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/portable/rowwise.cc"
#include "kernels/portable/target.h"
#if TANDEM_PORTABLE_TARGET

#include "kernels/portable/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::kernels::portable::HWY_NAMESPACE {
namespace {

// Sum of squares in four vectors of partial sums, so that additions do not wait for each other.
float sum_of_squares(const float* x, int64_t count) {
  const FloatTag d;
  FloatVec sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int64_t v = 0; v < 4; ++v) {
      const FloatVec part = hn::LoadU(d, x + i + v * kLanes);
      sums[v] = hn::MulAdd(part, part, sums[v]);
    }
  }
  for (; i + kLanes <= count; i += kLanes) {
    const FloatVec part = hn::LoadU(d, x + i);
    sums[0] = hn::MulAdd(part, part, sums[0]);
  }
  const FloatVec all = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
  float sum = hn::GetLane(hn::SumOfLanes(d, all));
  for (; i < count; ++i) {
    sum += x[i] * x[i];
  }
  return sum;
}

template <typename Out>
void rms_norm_row(const RmsNormArgs& args, const float* x, Out* y) {
  const FloatTag d;
  const float mean = sum_of_squares(x, args.hidden) / static_cast<float>(args.hidden);
  const float factor = 1.0F / std::sqrt(mean + args.epsilon);
  const FloatVec factors = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + kLanes <= args.hidden; i += kLanes) {
    const FloatVec scaled = hn::Mul(hn::LoadU(d, x + i), factors);
    store_vector(hn::Mul(scaled, hn::LoadU(d, args.weight + i)), y + i);
  }
  for (; i < args.hidden; ++i) {
    store_scalar(x[i] * factor * args.weight[i], y + i);
  }
  std::memset(y + i, 0, static_cast<size_t>(args.y_stride - i) * sizeof(Out));
}

void rms_norm(const RmsNormArgs& args, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float* x = args.x + row * args.x_stride;
    if (args.y_type == ElementType::kF32) {
      rms_norm_row(args, x, static_cast<float*>(args.y) + row * args.y_stride);
    } else {
      rms_norm_row(args, x, static_cast<BFloat16*>(args.y) + row * args.y_stride);
    }
  }
}

// Rotates `x` [head_dim] into `y`; both may be the same. Elements are stored as `Out`.
template <typename Out>
void rotate(const float* x, const float* cos, const float* sin, int64_t half, Out* y) {
  const FloatTag d;
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const FloatVec low = hn::LoadU(d, x + i);
    const FloatVec high = hn::LoadU(d, x + half + i);
    const FloatVec c = hn::LoadU(d, cos + i);
    const FloatVec s = hn::LoadU(d, sin + i);
    store_vector(hn::Sub(hn::Mul(low, c), hn::Mul(high, s)), y + i);
    store_vector(hn::Add(hn::Mul(high, c), hn::Mul(low, s)), y + half + i);
  }
  for (; i < half; ++i) {
    const float low = x[i];
    const float high = x[half + i];
    store_scalar(low * cos[i] - high * sin[i], y + i);
    store_scalar(high * cos[i] + low * sin[i], y + half + i);
  }
}

// The head that is rotated: `x` [head_dim] itself, or its RMS norm, put into `room`.
HWY_INLINE const float* normed_head(const float* x, const float* weight, const RopeWriteArgs& args,
                                    float* room) {
  if (weight == nullptr) {
    return x;
  }
  const int64_t dims = args.layout.head_dim;
  const RmsNormArgs norm{
      .hidden = dims, .weight = weight, .epsilon = args.norm_epsilon, .y_stride = dims};
  rms_norm_row(norm, x, room);
  return room;
}

template <typename Out>
void convert(const float* x, int64_t count, Out* y) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store_vector(hn::LoadU(FloatTag(), x + i), y + i);
  }
  for (; i < count; ++i) {
    store_scalar(x[i], y + i);
  }
}

void write_key(const KvLayout& layout, int64_t slot, const float* elements, float* key) {
  for (int64_t dim = 0; dim < layout.padded_head_dim; ++dim) {
    key[dim * layout.block_tokens + slot] = elements[dim];
  }
}

void write_key(const KvLayout& layout, int64_t slot, const BFloat16* elements, BFloat16* key) {
  for (int64_t dim = 0; dim < layout.padded_head_dim; dim += 2) {  // a pair is the token's own
    std::memcpy(key + dim * layout.block_tokens + slot * 2, elements + dim, 2 * sizeof(BFloat16));
  }
}

void write_value(const KvLayout& layout, int64_t slot, const float* elements, float* value) {
  const auto width = static_cast<size_t>(layout.padded_head_dim);
  std::memcpy(value + slot * layout.padded_head_dim, elements, width * sizeof(float));
}

// Elements go one by one: the other half of a pair belongs to another token, which another thread
// may be writing.
void write_value(const KvLayout& layout, int64_t slot, const BFloat16* elements, BFloat16* value) {
  BFloat16* to = value + slot / 2 * layout.padded_head_dim * 2 + slot % 2;
  for (int64_t dim = 0; dim < layout.padded_head_dim; ++dim) {
    to[dim * 2] = elements[dim];
  }
}

template <typename Element>
void write_kv_row(const RopeWriteArgs& args, const float* keys, const float* values,
                  const float* cos, const float* sin, int64_t row) {
  const KvLayout& layout = args.layout;
  const int64_t width = layout.padded_head_dim;
  const int64_t slot = args.slots[row];
  Element head_elements[kMaxPaddedHeadDim];
  float room[kMaxPaddedHeadDim];
  for (int64_t head = 0; head < layout.kv_heads; ++head) {
    auto* key =
        reinterpret_cast<Element*>(args.kv + layout.key_offset(args.blocks[row], args.layer, head));
    auto* value = reinterpret_cast<Element*>(
        args.kv + layout.value_offset(args.blocks[row], args.layer, head));
    const size_t padding = static_cast<size_t>(width - layout.head_dim) * sizeof(Element);
    std::memset(head_elements + layout.head_dim, 0, padding);
    const float* own = normed_head(keys + head * width, args.k_norm, args, room);
    rotate(own, cos, sin, layout.head_dim / 2, head_elements);
    write_key(layout, slot, head_elements, key);
    convert(values + head * width, layout.head_dim, head_elements);
    write_value(layout, slot, head_elements, value);
  }
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
    for (int64_t head = 0; head < args.heads; ++head) {
      float* q = args.q + (row * args.heads + head) * width;
      // The norm may stand where the rotated head will: rotate() works in place.
      rotate(normed_head(queries + head * width, args.q_norm, args, q), cos, sin, half, q);
      std::memset(q + layout.head_dim, 0,
                  static_cast<size_t>(width - layout.head_dim) * sizeof(float));
    }
    if (layout.type == ElementType::kF32) {
      write_kv_row<float>(args, keys, values, cos, sin, row);
    } else {
      write_kv_row<BFloat16>(args, keys, values, cos, sin, row);
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

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tandem::kernels::portable::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE
namespace tandem::kernels::portable {
TANDEM_PORTABLE_EXPORT(fill_rowwise)
}  // namespace tandem::kernels::portable
#endif
