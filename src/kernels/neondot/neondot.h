// Products of activations rounded to int8 (Activations::kInt8) with sdot, which multiplies four
// bytes for each of four columns. For 64-bit Arm processors that have it.
#pragma once

#include "kernels/kernels.h"

namespace tandem::kernels::neondot {

// The portable functions compute only the other products.
void fill_gemm(Kernels& table);

}  // namespace tandem::kernels::neondot
