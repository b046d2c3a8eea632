// The portable vector kernels: one source per family of kernels, compiled for each vector target
// (see target.h). Each fill_ function sets its family's entries of a table to the functions
// compiled for `isa`: kAvx2 or kAvx512 on x86, kNeon on aarch64. kAvx512Bf16 and kAmx take those of
// kAvx512.
//
// A new family: its source in CMakeLists.txt, its fill_ function here, its line in select.cc.
#pragma once

#include "kernels/kernels.h"

namespace tandem::kernels::portable {

// gemm_scratch_bytes, gemm, and the layout's functions: pack, unpack_row, embed (panel_layout.h).
void fill_gemm(Isa isa, Kernels& table);
// rms_norm, rope_table, rope_write, rope_route, tail_gather, kv_append, row_gather.
void fill_rowwise(Isa isa, Kernels& table);
// attend_scratch_bytes, attend, fold, write_attended.
void fill_attention(Isa isa, Kernels& table);
void fill_sample(Isa isa, Kernels& table);  // sample

// What the families that multiply bf16 as such do with fp32 weights.
inline Kernels avx512_gemm() {
  Kernels table;
  fill_gemm(Isa::kAvx512, table);
  return table;
}

}  // namespace tandem::kernels::portable
