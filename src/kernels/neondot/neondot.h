// Products of activations rounded to int8 (Activations::kInt8) with sdot, which multiplies four
// bytes for each of four columns. For 64-bit Arm processors that have it.
#pragma once

#include "kernels/kernels.h"

namespace tandem::kernels::neondot {

// As gemm_scratch_bytes and gemm of a table. args.w.int8_products().
int64_t gemm_scratch_bytes(const GemmArgs& args);
void gemm(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch);

// Lets the portable functions compute only the other products.
void fill_gemm(Kernels& table);

}  // namespace tandem::kernels::neondot
