// Products of activations rounded to int8 (Activations::kInt8) with vpdpbusd, which multiplies four
// bytes for each column: twice the depths of an instruction for pairs of bf16.
#pragma once

#include "kernels/kernels.h"

namespace tandem::kernels::avx512vnni {

// The functions of these names in Kernels, for args.w.int8_products().
int64_t gemm_scratch_bytes(const GemmArgs& args);
int64_t prepared_bytes(const GemmArgs& args);
void prepare(const GemmArgs& args, int64_t row_begin, int64_t row_end, void* prepared);
void gemm(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch);

// Lets the AVX-512 functions that `table` holds on entry compute only the other products.
void fill_gemm(Kernels& table);

}  // namespace tandem::kernels::avx512vnni
