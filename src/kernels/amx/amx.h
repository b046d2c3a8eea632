// The AMX BF16 matrix kernel. It reads the panel layout of panel_layout.h, as the portable kernels
// do, so it replaces only gemm and gemm_scratch_bytes of the AVX-512 table. fp32 weights are passed
// on to the AVX-512 kernel: the type decides, never the number of rows.
#pragma once

#include "kernels/kernels.h"

namespace tandem::kernels::amx {

// `table` holds the AVX-512 functions on entry.
void fill_gemm(Kernels& table);

}  // namespace tandem::kernels::amx
