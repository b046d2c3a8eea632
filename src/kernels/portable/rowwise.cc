// Norms, RoPE with the KV write or the route to the other tier, and gathers, for every vector
// target.
#include <cmath>
#include <cstring>

#include "kernels/kv_store.h"
#include "kernels/portable/portable.h"
#include "kernels/rope_table.h"
#include "kernels/routed_rows.h"

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
HWY_INLINE const float* normed_head(const float* x, const float* weight, float epsilon,
                                    int64_t head_dim, float* room) {
  if (weight == nullptr) {
    return x;
  }
  const RmsNormArgs norm{
      .hidden = head_dim, .weight = weight, .epsilon = epsilon, .y_stride = head_dim};
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

// One row of a QKV product and its angles. What the heads become is written here once, for
// RopeWriteArgs and RopeRouteArgs, so that both give the same bits.
template <typename Args>
class RopeRow {
 public:
  RopeRow(const Args& args, int64_t row)
      : args_(args),
        dims_(args.layout.head_dim),
        width_(args.layout.padded_head_dim),
        cos_(args.cos + row * (dims_ / 2)),
        sin_(args.sin + row * (dims_ / 2)),
        queries_(args.qkv + row * args.qkv_stride),
        keys_(queries_ + args.heads * width_),
        values_(keys_ + args.layout.kv_heads * width_) {}

  // q [heads, padded_head_dim]
  void make_queries(float* q) const {
    for (int64_t head = 0; head < args_.heads; ++head, q += width_) {
      // The norm may stand where the rotated head will: rotate() works in place.
      const float* x =
          normed_head(queries_ + head * width_, args_.q_norm, args_.norm_epsilon, dims_, q);
      rotate(x, cos_, sin_, dims_ / 2, q);
      pad(q);
    }
  }
  // elements [padded_head_dim], as the KV holds them
  template <typename Element>
  void make_key(int64_t head, Element* elements) const {
    float room[kMaxPaddedHeadDim];
    const float* x =
        normed_head(keys_ + head * width_, args_.k_norm, args_.norm_epsilon, dims_, room);
    rotate(x, cos_, sin_, dims_ / 2, elements);
    pad(elements);
  }
  template <typename Element>
  void make_value(int64_t head, Element* elements) const {
    convert(values_ + head * width_, dims_, elements);
    pad(elements);
  }

 private:
  template <typename Element>
  void pad(Element* elements) const {
    std::memset(elements + dims_, 0, static_cast<size_t>(width_ - dims_) * sizeof(Element));
  }

  const Args& args_;
  const int64_t dims_;
  const int64_t width_;
  const float* cos_;
  const float* sin_;
  const float* queries_;
  const float* keys_;
  const float* values_;
};

template <typename Element>
void write_kv_row(const RopeWriteArgs& args, const RopeRow<RopeWriteArgs>& rope, int64_t row) {
  const KvPlace place{args.kv, args.layer, args.blocks[row], args.slots[row]};
  Element elements[kMaxPaddedHeadDim];
  for (int64_t head = 0; head < args.layout.kv_heads; ++head) {
    rope.make_key(head, elements);
    store_key(args.layout, place, head, elements);
    rope.make_value(head, elements);
    store_value(args.layout, place, head, elements);
  }
}

void rope_write(const RopeWriteArgs& args, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    const RopeRow<RopeWriteArgs> rope(args, row);
    rope.make_queries(static_cast<float*>(args.q) + row * args.heads * args.layout.padded_head_dim);
    if (args.layout.type == ElementType::kF32) {
      write_kv_row<float>(args, rope, row);
    } else {
      write_kv_row<BFloat16>(args, rope, row);
    }
  }
}

template <typename Element>
void route_kv(const RopeRouteArgs& args, const RopeRow<RopeRouteArgs>& rope,
              const RoutedRow& routed, std::byte* row) {
  auto* keys = reinterpret_cast<Element*>(row + routed.key_offset());
  auto* values = reinterpret_cast<Element*>(row + routed.value_offset());
  for (int64_t head = 0; head < args.layout.kv_heads; ++head) {
    rope.make_key(head, keys + head * args.layout.padded_head_dim);
    rope.make_value(head, values + head * args.layout.padded_head_dim);
  }
}

void rope_route(const RopeRouteArgs& args, int64_t row_begin, int64_t row_end) {
  const RoutedRow routed(args.layout, args.heads);
  for (int64_t row = row_begin; row < row_end; ++row) {
    const RopeRow<RopeRouteArgs> rope(args, row);
    std::byte* to = args.ring + args.ring_rows[row] * routed.bytes();
    rope.make_queries(reinterpret_cast<float*>(to));
    if (args.layout.type == ElementType::kF32) {
      route_kv<float>(args, rope, routed, to);
    } else {
      route_kv<BFloat16>(args, rope, routed, to);
    }
    std::memcpy(args.residual_store + args.residual_slots[row] * args.store_stride,
                args.residual + row * args.residual_stride,
                static_cast<size_t>(args.residual_columns) * sizeof(float));
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

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tandem::kernels::portable::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE
namespace tandem::kernels::portable {
TANDEM_PORTABLE_EXPORT(fill_rowwise, Kernels)
}  // namespace tandem::kernels::portable
#endif
