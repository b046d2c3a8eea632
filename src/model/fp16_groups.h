// For sources of groups: conversions to fp16 in which a value that does not fit becomes infinite,
// so that the checks of loading find it. Any thread.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/float16.h"
#include "kernels/quantize.h"

namespace tandem::model {

inline constexpr uint16_t kHalfInfinity = 0x7c00;

// Infinite if fp16 cannot hold `value`, or if it is NaN.
inline uint16_t half_bits(float value) {
  constexpr float kLimit = 65520.0F;  // less is rounded to 65504
  return std::fabs(value) < kLimit ? f32_to_f16(value) : kHalfInfinity;
}

// Values rounded to int8; an infinite scale if a value is too large or NaN.
inline kernels::QuantizedGroup int8_group(const float (&values)[kQuantizedGroup]) {
  constexpr float kLargest = 127 * kernels::kLargestScale;
  for (const float value : values) {
    if (!(std::fabs(value) <= kLargest)) {
      return {.scale = kHalfInfinity};
    }
  }
  return kernels::quantize_group(Quantization::kInt8, values);
}

}  // namespace tandem::model
