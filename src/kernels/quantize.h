// Rounds a group of weights to integers with a common scale (base/quantization.h), for packing.
// Groups that come from the same arithmetic are found again without loss: those of GGUF's Q8_0 in
// int8 and those of its Q4_0 in int4. Any thread.
#pragma once

#include <cstdint>

#include "base/quantization.h"

namespace tandem::kernels {

struct QuantizedGroup {
  uint16_t scale = 0;                   // fp16
  int8_t values[kQuantizedGroup] = {};  // element i is scale * values[i]
};

// `values` are finite. int8: the scale is the largest magnitude / 127. int4: of a few scales around
// the value of largest magnitude / -8, the one with the smallest sum of squared errors.
QuantizedGroup quantize_group(Quantization quantization, const float (&values)[kQuantizedGroup]);

}  // namespace tandem::kernels
