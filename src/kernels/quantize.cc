#include "kernels/quantize.h"

#include <algorithm>
#include <cmath>

#include "base/element_type.h"
#include "base/float16.h"

namespace tandem::kernels {
namespace {

constexpr int kCount = kQuantizedGroup;
constexpr float kMaxScale = 65000.0F;

struct Range {
  float min;
  float max;
};

// Ties go to the even integer: adding 1.5 * 2^23 leaves no bits for a fraction. |x| < 2^22.
float round_whole(float x) {
  constexpr float kMagic = 12582912.0F;
  return (x + kMagic) - kMagic;
}

uint16_t scale_bits(float scale) { return f32_to_f16(std::clamp(scale, -kMaxScale, kMaxScale)); }

// The nearest multiple of `scale` of every value, in multiples; returns the sum of squared errors.
float round_to(const float (&values)[kCount], float scale, Range range, float (&rounded)[kCount]) {
  const float inverse = scale == 0.0F ? 0.0F : 1.0F / scale;
  float errors[kCount];
  for (int i = 0; i < kCount; ++i) {
    const float q = round_whole(std::min(std::max(values[i] * inverse, range.min), range.max));
    const float error = values[i] - q * scale;
    rounded[i] = q;
    errors[i] = error * error;
  }
  float parts[8] = {};
  for (int i = 0; i < kCount; ++i) {
    parts[i % 8] += errors[i];
  }
  return ((parts[0] + parts[1]) + (parts[2] + parts[3])) +
         ((parts[4] + parts[5]) + (parts[6] + parts[7]));
}

// The value of largest magnitude, the first one of equals.
float extreme_of(const float (&values)[kCount]) {
  float extreme = 0.0F;
  for (const float value : values) {
    extreme = std::fabs(value) > std::fabs(extreme) ? value : extreme;
  }
  return extreme;
}

void assign(uint16_t scale, const float (&rounded)[kCount], QuantizedGroup& group) {
  group.scale = scale;
  for (int i = 0; i < kCount; ++i) {
    group.values[i] = static_cast<int8_t>(rounded[i]);
  }
}

}  // namespace

QuantizedGroup quantize_group(Quantization quantization, const float (&values)[kCount]) {
  QuantizedGroup group;
  float rounded[kCount];
  const float extreme = extreme_of(values);
  if (quantization == Quantization::kInt8) {
    const uint16_t scale = scale_bits(std::fabs(extreme) / 127.0F);
    round_to(values, f16_to_f32(scale), {-127.0F, 127.0F}, rounded);
    assign(scale, rounded, group);
    return group;
  }
  // The extreme becomes -8 with the first; others give it up for smaller steps, or take larger ones
  // so that the values at the other end fit too.
  float best = INFINITY;
  for (const float steps : {-8.0F, -7.4F, -6.9F, -8.5F, -9.0F, 7.0F}) {
    const uint16_t scale = scale_bits(extreme / steps);
    const float error = round_to(values, f16_to_f32(scale), {-8.0F, 7.0F}, rounded);
    if (error < best) {
      best = error;
      assign(scale, rounded, group);
    }
  }
  return group;
}

}  // namespace tandem::kernels
