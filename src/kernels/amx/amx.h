// The kernels of the AMX BF16 matrix unit: matrix products, and attention over bf16 KV. They read
// the layouts of panel_layout.h and kv_layout.h, as the portable kernels do, so they replace only
// these functions of the AVX-512 table. The AVX-512 kernels still compute with fp32 weights or KV
// and blocks of 16 tokens, and the VNNI kernels with activations rounded to int8: types and layouts
// decide, never rows, batch or context.
#pragma once

#include "kernels/kernels.h"

namespace tandem::kernels::amx {

// `table` holds the AVX-512 functions on entry.
void fill_gemm(Kernels& table);
void fill_attention(Kernels& table);

// Products with quantised weights and bf16 activations (quantized.cc). quantized_gemm needs rows >
// 0.
int64_t quantized_scratch_bytes(const GemmArgs& args);
void quantized_gemm(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch);

}  // namespace tandem::kernels::amx
