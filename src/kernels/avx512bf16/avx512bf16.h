// The kernels of AVX-512 BF16, whose products of pairs of bf16 (vdpbf16ps) do as much in one
// instruction as two multiply-adds and need no conversion. They replace only the matrix products of
// the AVX-512 table, for bf16 and quantised weights; products with fp32 weights are passed on to
// it.
#pragma once

#include "kernels/kernels.h"

namespace tandem::kernels::avx512bf16 {

// `table` holds the AVX-512 functions on entry.
void fill_gemm(Kernels& table);

}  // namespace tandem::kernels::avx512bf16
