// Rounds a group of weights to integers with a common scale (base/quantization.h), for packing; and
// the sums that products with a minimum need. Groups that come from the same arithmetic are found
// again without loss: those of GGUF's Q8_0 in int8 and those of its Q4_0 in int4-symmetric. Any
// thread.
#pragma once

#include <cstdint>

#include "base/element_type.h"
#include "base/quantization.h"

namespace tandem::kernels {

struct QuantizedGroup {
  uint16_t scale = 0;                   // fp16
  uint16_t minimum = 0;                 // fp16; 0 if the kind has none
  int8_t values[kQuantizedGroup] = {};  // element i is minimum + scale * values[i]

  [[nodiscard]] float element(int64_t i) const {
    return f16_to_f32(minimum) + f16_to_f32(scale) * static_cast<float>(values[i]);
  }
};

// Bytes of `elements` of a matrix before it is packed: numbers of `type`, or groups.
constexpr int64_t source_bytes(ElementType type, Quantization quantization, int64_t elements) {
  return quantization == Quantization::kNone
             ? elements * element_bytes(type)
             : elements / kQuantizedGroup * static_cast<int64_t>(sizeof(QuantizedGroup));
}

inline constexpr float kLargestScale = 65000.0F;  // values beyond it are clipped

// `values` are finite. int8: the scale is the largest magnitude / 127 in fp16, so that no value of
// a group within 127 * kLargestScale is changed by more than 1.001 / 254 of the largest magnitude
// and 2^-25, which matters where scales are subnormal. The others: of a few scales (and minima)
// those with the smallest sum of squared errors.
QuantizedGroup quantize_group(Quantization quantization, const float (&values)[kQuantizedGroup]);

// The same weights in another kind: without loss from int4-symmetric to the wider kinds, else
// rounded again.
QuantizedGroup convert_group(const QuantizedGroup& group, Quantization from, Quantization to);

// The sums of x over each group of depths, in an order that is the same for every family: sums[g].
void group_sums(const BFloat16* x, int64_t groups, float* sums);

// A group of activations as integers: element i is about scale * values[i].
struct RoundedGroup {
  float scale = 0;  // the largest magnitude / 127, not a denormal; NaN if an element is not finite
  int32_t sum = 0;  // of values
  int8_t values[kQuantizedGroup] = {};
  // Of the rounded elements.
  [[nodiscard]] float element_sum() const { return scale * static_cast<float>(sum); }
};

// Groups whose elements are all smaller count as zeros, so that no sum in a product is denormal.
inline constexpr float kLeastRounded = 0x1p-60F;

// Rounds to nearest, ties to even. Each element changes by at most 1.001 / 254 of the largest
// magnitude. Vector families compute the same bits.
RoundedGroup round_group(const BFloat16 (&x)[kQuantizedGroup]);

}  // namespace tandem::kernels
