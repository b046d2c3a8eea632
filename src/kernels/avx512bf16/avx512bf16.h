// The kernels of AVX-512 BF16, whose products of pairs of bf16 (vdpbf16ps) do as much in one
// instruction as two multiply-adds and need no conversion. They replace only the matrix products of
// the AVX-512 table, for bf16 and quantised weights; products with fp32 weights are passed on to
// it.
#pragma once

#include "kernels/kernels.h"

namespace tandem::kernels::avx512bf16 {

// `table` holds the AVX-512 functions on entry.
void fill_gemm(Kernels& table);

// The functions of these names in Kernels. They prepare the rounded rows of avx512vnni or, if w has
// minima, fp32 sums of x over groups of depths, as [row][k / 32].
int64_t prepared_bytes(const GemmArgs& args);
void prepare(const GemmArgs& args, int64_t row_begin, int64_t row_end, void* prepared);

}  // namespace tandem::kernels::avx512bf16
