// The weights of the quantised layers of a checkpoint (packed_layer.h): rows as groups of 32
// integers with scales (base/quantization.h), or as numbers. Any thread; no state.
//
// An element is scale * (q - zero). Its group of columns, which may be a whole row, becomes several
// groups of 32 with the same scale. How exact they are:
//
// - int4-symmetric, from 4 bits without zero points: every value.
// - int4, from 4 bits with zero points: q and scale. minimum = -zero * scale is rounded to fp16: by
//   at most 2^-11 of its size, or 2^-25 below 2^-14.
// - int8, from 8 bits without zero points, or from any 4 bits: every value.
// - int8, from 8 bits with zero points: every value of a group of 32 whose q - zero lie between
// -128
//   and 127; other groups are rounded (kernels/quantize.h).
// - int8, from any bits with columns that the file reorders: 32 neighbours have scales of their
// own, so they are rounded (kernels/quantize.h).
// - numbers: scale * (q - zero) in fp32, rounded to the type.
//
// For groups, a scale must be an fp16 number to stay exact: F16 always is, BF16 is from 2^-17 on.
// Other scales are rounded to fp16: by at most 2^-11 of the scale, or 2^-25 below 2^-14. A scale or
// minimum that is not finite in fp16 is delivered as infinity, so that loading finds it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/element_type.h"
#include "base/quantization.h"
#include "kernels/quantize.h"
#include "model/packed_layer.h"

namespace tandem::model {

// The zero point of a row's group, on the scale of the integers in the file.
int32_t packed_zero(const PackedLayer& layer, int64_t row, int64_t group);

// Rows [first, last), one behind the other: (last - first) * columns / 32 groups. `kind`: the
// layer's own, or kInt8 if that is not kNone. The data of the layer's parts must be readable.
void packed_groups(const PackedLayer& layer, Quantization kind, int64_t first, int64_t last,
                   kernels::QuantizedGroup* out);

// The same rows as numbers of `type`, fp32 or bf16.
void packed_numbers(const PackedLayer& layer, ElementType type, int64_t first, int64_t last,
                    std::byte* out);

}  // namespace tandem::model
