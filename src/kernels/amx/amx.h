// The kernels of the AMX BF16 matrix unit: matrix products, and attention over bf16 KV. They read
// the layouts of panel_layout.h and kv_layout.h, as the portable kernels do, so they replace only
// these functions of the AVX-512 table. What the unit cannot do (fp32 weights or KV, blocks of 16
// tokens) is passed on to the AVX-512 kernels: types and layouts decide, never rows, batch or
// context.
#pragma once

#include "kernels/kernels.h"

namespace tandem::kernels::amx {

// `table` holds the AVX-512 functions on entry.
void fill_gemm(Kernels& table);
void fill_attention(Kernels& table);

// Products with quantised weights and bf16 activations, for rows > 0 (quantized.cc).
int64_t quantized_scratch_bytes(const GemmArgs& args);
void quantized_gemm(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch);

}  // namespace tandem::kernels::amx
