#include "kernels/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/element_type.h"
#include "base/float16.h"

namespace tandem::kernels {
namespace {

constexpr int kCount = kQuantizedGroup;

struct Range {
  float min;
  float max;
};

// Ties go to the even integer: adding 1.5 * 2^23 leaves no bits for a fraction. |x| < 2^22.
float round_whole(float x) {
  constexpr float kMagic = 12582912.0F;
  return (x + kMagic) - kMagic;
}

uint16_t scale_bits(float scale) {
  return f32_to_f16(std::clamp(scale, -kLargestScale, kLargestScale));
}

struct Line {
  float scale;
  float minimum;
};

// The nearest point of the line of every value, in scales; returns the sum of squared errors.
float round_to(const float (&values)[kCount], Line line, Range range, float (&rounded)[kCount]) {
  const float inverse = line.scale == 0.0F ? 0.0F : 1.0F / line.scale;
  float errors[kCount];
  for (int i = 0; i < kCount; ++i) {
    const float steps = (values[i] - line.minimum) * inverse;
    const float q = round_whole(std::min(std::max(steps, range.min), range.max));
    const float error = values[i] - line.minimum - q * line.scale;
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

void assign(const float (&rounded)[kCount], QuantizedGroup& group) {
  for (int i = 0; i < kCount; ++i) {
    group.values[i] = static_cast<int8_t>(rounded[i]);
  }
}

QuantizedGroup to_int8(const float (&values)[kCount]) {
  constexpr uint16_t kLargestSubnormal = 0x03ff;
  const float extreme = std::fabs(extreme_of(values));
  QuantizedGroup group{.scale = scale_bits(extreme / 127.0F)};
  // A subnormal scale may have been rounded down so far that 127 steps end short of the extreme.
  if (group.scale <= kLargestSubnormal && 127.5F * f16_to_f32(group.scale) < extreme) {
    ++group.scale;
  }
  float rounded[kCount];
  round_to(values, {f16_to_f32(group.scale), 0.0F}, {-127.0F, 127.0F}, rounded);
  assign(rounded, group);
  return group;
}

// The extreme becomes -8 with the first; others give it up for smaller steps, or take larger ones
// so that the values at the other end fit too.
QuantizedGroup to_symmetric_int4(const float (&values)[kCount]) {
  QuantizedGroup group;
  const float extreme = extreme_of(values);
  float best = INFINITY;
  for (const float steps : {-8.0F, -7.4F, -6.9F, -8.5F, -9.0F, 7.0F}) {
    const uint16_t scale = scale_bits(extreme / steps);
    float rounded[kCount];
    const float error = round_to(values, {f16_to_f32(scale), 0.0F}, {-8.0F, 7.0F}, rounded);
    if (error < best) {
      best = error;
      group.scale = scale;
      assign(rounded, group);
    }
  }
  return group;
}

// The line through (q, value) with the least squared error; as it was where all q are equal.
Line fitted(const float (&values)[kCount], const float (&q)[kCount], const Line& before) {
  float sum_q = 0.0F;
  float sum_qq = 0.0F;
  float sum_value = 0.0F;
  float sum_qvalue = 0.0F;
  for (int i = 0; i < kCount; ++i) {
    sum_q += q[i];
    sum_qq += q[i] * q[i];
    sum_value += values[i];
    sum_qvalue += q[i] * values[i];
  }
  const float spread = kCount * sum_qq - sum_q * sum_q;
  if (spread <= 0.0F) {
    return before;
  }
  const float scale = (kCount * sum_qvalue - sum_q * sum_value) / spread;
  return {scale, (sum_value - scale * sum_q) / kCount};
}

// From the ends of the range and from ranges that leave out a part of it, each fitted to its own
// integers a few times.
QuantizedGroup to_int4(const float (&values)[kCount]) {
  constexpr int kFits = 3;
  constexpr float kSteps = 15.0F;
  const auto [lowest, highest] = std::minmax_element(values, values + kCount);
  QuantizedGroup group;
  float best = INFINITY;
  for (const float part : {1.0F, 0.92F, 0.84F}) {
    const float middle = *lowest / 2 + *highest / 2;
    const float half = (*highest / 2 - *lowest / 2) * part;
    Line line{half / kSteps * 2, middle - half};
    for (int fit = 0; fit <= kFits; ++fit) {
      const uint16_t scale = scale_bits(line.scale);
      const uint16_t minimum = scale_bits(line.minimum);
      const Line stored{f16_to_f32(scale), f16_to_f32(minimum)};
      float rounded[kCount];
      const float error = round_to(values, stored, {0.0F, kSteps}, rounded);
      if (error < best) {
        best = error;
        group.scale = scale;
        group.minimum = minimum;
        assign(rounded, group);
      }
      line = fitted(values, rounded, line);
    }
  }
  return group;
}

}  // namespace

QuantizedGroup quantize_group(Quantization quantization, const float (&values)[kCount]) {
  return quantization == Quantization::kInt8   ? to_int8(values)
         : quantization == Quantization::kInt4 ? to_int4(values)
                                               : to_symmetric_int4(values);
}

QuantizedGroup convert_group(const QuantizedGroup& group, Quantization from, Quantization to) {
  if (from == to || (from == Quantization::kInt4Symmetric && to == Quantization::kInt8)) {
    return group;
  }
  constexpr int kLeast = -8;  // of int4-symmetric
  const float minimum = static_cast<float>(kLeast) * f16_to_f32(group.scale);
  if (from == Quantization::kInt4Symmetric && to == Quantization::kInt4 &&
      std::fabs(minimum) <= kLargestScale) {
    QuantizedGroup shifted{.scale = group.scale, .minimum = f32_to_f16(minimum)};
    for (int i = 0; i < kCount; ++i) {
      shifted.values[i] = static_cast<int8_t>(group.values[i] - kLeast);
    }
    return shifted;
  }
  float values[kCount];
  for (int i = 0; i < kCount; ++i) {
    values[i] = group.element(i);
  }
  return quantize_group(to, values);
}

RoundedGroup round_group(const BFloat16 (&x)[kCount]) {
  constexpr int32_t kInfinite = 0x7f80;
  constexpr int32_t kMagnitude = 0x7fff;
  RoundedGroup group;
  int32_t largest_bits = 0;  // magnitudes are in the order of their bits
  for (const BFloat16 value : x) {
    largest_bits = std::max(largest_bits, value & kMagnitude);
  }
  if (largest_bits >= kInfinite) {
    group.scale = std::numeric_limits<float>::quiet_NaN();
    return group;
  }
  const float largest = bf16_to_f32(static_cast<BFloat16>(largest_bits));
  if (largest < kLeastRounded) {
    return group;
  }
  group.scale = largest / 127.0F;
  const float inverse = 127.0F / largest;
  for (int i = 0; i < kCount; ++i) {
    const float steps = bf16_to_f32(x[i]) * inverse;
    const auto value = static_cast<int32_t>(round_whole(steps));
    group.values[i] = static_cast<int8_t>(value);
    group.sum += value;
  }
  return group;
}

void group_sums(const BFloat16* x, int64_t groups, float* sums) {
  for (int64_t group = 0; group < groups; ++group, x += kQuantizedGroup) {
    float parts[16];
    for (int i = 0; i < 16; ++i) {
      parts[i] = bf16_to_f32(x[i]) + bf16_to_f32(x[i + 16]);
    }
    for (int i = 0; i < 8; ++i) {
      parts[i] += parts[i + 8];
    }
    for (int i = 0; i < 4; ++i) {
      parts[i] += parts[i + 4];
    }
    sums[group] = (parts[0] + parts[2]) + (parts[1] + parts[3]);
  }
}

}  // namespace tandem::kernels
