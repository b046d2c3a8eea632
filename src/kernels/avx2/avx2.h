// Products of activations rounded to int8 (Activations::kInt8) without instructions made for them:
// int8 weights as pairs of 16 bits (vpmaddwd), int4 weights as bytes whose sums of a group fit 16
// bits (vpmaddubsw). For x86 processors with AVX2 and without AVX-512.
#pragma once

#include "kernels/kernels.h"

namespace tandem::kernels::avx2 {

// As gemm_scratch_bytes and gemm of a table. args.w.int8_products().
int64_t gemm_scratch_bytes(const GemmArgs& args);
void gemm(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch);

// Lets the portable functions compute only the other products.
void fill_gemm(Kernels& table);

}  // namespace tandem::kernels::avx2
