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

// How a row's sums with the 32 columns of a panel leave kernels of other rooms.
struct ResultRows {
  // y (+)= sums + bias from `column` on.
  void (*store)(const GemmArgs& args, const float* sums, int64_t row, int64_t column) = nullptr;
  // silu(gate) * up, as bf16.
  void (*store_activated)(const GemmArgs& args, const float* gate, const float* up, int64_t row,
                          int64_t column) = nullptr;
};
void fill_result_rows(Isa isa, ResultRows& rows);
inline ResultRows result_rows(Isa isa) {
  ResultRows rows;
  fill_result_rows(isa, rows);
  return rows;
}

// The products that a family does not compute itself.
inline Kernels gemm_of(Isa isa) {
  Kernels table;
  fill_gemm(isa, table);
  return table;
}

}  // namespace tandem::kernels::portable
