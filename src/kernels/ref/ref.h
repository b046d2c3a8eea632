// The reference kernels: plain loops that define what every other family must compute. Each fill_
// function sets its family's entries of a table.
//
// A new family: its source in CMakeLists.txt, its fill_ function here, its line in select.cc.
#pragma once

#include "kernels/kernels.h"

namespace tandem::kernels::ref {

// gemm_scratch_bytes, gemm, pack, unpack_row, embed. Packed layout: row-major [n, k].
void fill_gemm(Kernels& table);
// rms_norm, rope_table, rope_write, rope_route, tail_gather, kv_append, row_gather.
void fill_rowwise(Kernels& table);
// attend_scratch_bytes, attend, fold, write_attended.
void fill_attention(Kernels& table);
void fill_sample(Kernels& table);  // sample

}  // namespace tandem::kernels::ref
