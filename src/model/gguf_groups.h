// Blocks of GGUF as groups of 32 integers with scales, as Tandem's quantised weights have them
// (base/quantization.h). Q8_0, Q5_0, Q4_0 and Q4_1 keep every value. Q4_K keeps its integers; the
// scale and minimum of a run, products of an fp16 number and one of 6 bits, are rounded to fp16: at
// most 2^-11 of each. Q5_1, Q5_K and Q6_K are rounded to int8 (kernels/quantize.h has the bound),
// and Q4_1 and Q4_K too if that is asked for. Any thread; no state.
#pragma once

#include <cstddef>
#include <span>

#include "gguf/blocks.h"
#include "kernels/quantize.h"

namespace tandem::model {

// `blocks`: whole blocks of `type`, a quantised one, for exactly 32 x out.size() values; no
// alignment is needed. `kind`, of the groups: stored_quantization(type), or kInt8.
void gguf_groups(gguf::BlockType type, const std::byte* blocks, Quantization kind,
                 std::span<kernels::QuantizedGroup> out);

}  // namespace tandem::model
