// Products of activations rounded to int8 (Activations::kInt8) without instructions made for them:
// int8 weights as pairs of 16 bits (vpmaddwd), int4 weights as bytes whose sums of a group fit 16
// bits (vpmaddubsw). For x86 processors with AVX2 and without AVX-512.
#pragma once

#include "kernels/kernels.h"

namespace tandem::kernels::avx2 {

// The portable functions compute only the other products.
void fill_gemm(Kernels& table);

}  // namespace tandem::kernels::avx2
