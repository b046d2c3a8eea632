#include "kernels/cast.h"

#include <algorithm>

namespace tandem::kernels {
namespace {

constexpr float to_f32(float x, ElementType) { return x; }
inline float to_f32(uint16_t x, ElementType type) {
  return type == ElementType::kBF16 ? bf16_to_f32(x) : f16_to_f32(x);
}

template <class From>
void cast_from(const CastArgs& args, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    const From* from = static_cast<const From*>(args.x) + row * args.x_stride;
    if (args.y_type == ElementType::kF32) {
      std::transform(from, from + args.columns, static_cast<float*>(args.y) + row * args.y_stride,
                     [&](From x) { return to_f32(x, args.x_type); });
    } else {
      std::transform(from, from + args.columns,
                     static_cast<BFloat16*>(args.y) + row * args.y_stride,
                     [&](From x) { return f32_to_bf16(to_f32(x, args.x_type)); });
    }
  }
}

}  // namespace

void cast(const CastArgs& args, int64_t row_begin, int64_t row_end) {
  if (args.x_type == ElementType::kF32) {
    cast_from<float>(args, row_begin, row_end);
  } else {
    cast_from<uint16_t>(args, row_begin, row_end);
  }
}

}  // namespace tandem::kernels
