// The table of compute kernels of one instruction-set family, and the choice of a family. Maths on
// raw pointers: kernels never allocate, log, lock or throw, and know no model, sequence or thread
// pool. Every function computes a part (panels, rows or a task) that its caller may give to any
// thread; results do not depend on the division.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/isa.h"
#include "kernels/rowwise.h"
#include "kernels/sample.h"

namespace tandem::kernels {

inline int64_t prepares_nothing(const GemmArgs& /*args*/) { return 0; }

struct Kernels {
  Isa isa = Isa::kRef;
  const char* name = "";

  // Per-thread workspace that gemm and attend need, bytes; 64-byte aligned.
  int64_t (*gemm_scratch_bytes)(const GemmArgs&) = nullptr;
  int64_t (*attend_scratch_bytes)(const AttentionArgs&) = nullptr;

  void (*pack)(const PackArgs&, int64_t panel_begin, int64_t panel_end) = nullptr;
  void (*unpack_row)(const PackedMatrix&, int64_t row, float* out) = nullptr;  // out [k]
  // A family may round or sum the rows of X before the product, once for all panels. The result
  // takes prepared_bytes of memory, 64-byte aligned, and goes to GemmArgs::prepared when `prepare`
  // has run for all rows. 0 bytes: the family prepares nothing for this product.
  int64_t (*prepared_bytes)(const GemmArgs&) = prepares_nothing;
  void (*prepare)(const GemmArgs&, int64_t row_begin, int64_t row_end, void* prepared) = nullptr;
  void (*gemm)(const GemmArgs&, int64_t panel_begin, int64_t panel_end, void* scratch) = nullptr;
  void (*embed)(const EmbedArgs&, int64_t row_begin, int64_t row_end) = nullptr;
  void (*rms_norm)(const RmsNormArgs&, int64_t row_begin, int64_t row_end) = nullptr;
  void (*rope_table)(const RopeTableArgs&, int64_t row_begin, int64_t row_end) = nullptr;
  void (*rope_write)(const RopeWriteArgs&, int64_t row_begin, int64_t row_end) = nullptr;
  void (*rope_route)(const RopeRouteArgs&, int64_t row_begin, int64_t row_end) = nullptr;
  void (*tail_gather)(const TailGatherArgs&, int64_t row_begin, int64_t row_end) = nullptr;
  void (*kv_append)(const KvAppendArgs&, int64_t kv_head_begin, int64_t kv_head_end) = nullptr;
  // Computes the tasks in order; while one ends, the K and V of the next are on their way.
  void (*attend)(const AttentionArgs&, std::span<const AttentionTask>, void* scratch) = nullptr;
  // Records of attention_partial.h: state <- state merged with the next split's record, of
  // `padded_head_dim` values; and a whole context's state to its place in `out`.
  void (*fold)(float* state, const float* record, int64_t padded_head_dim) = nullptr;
  void (*write_attended)(const AttentionArgs&, int64_t row, int64_t head,
                         const float* state) = nullptr;
  void (*row_gather)(const RowGatherArgs&, int64_t row_begin, int64_t row_end) = nullptr;
  void (*sample)(const SampleArgs&, int64_t row_begin, int64_t row_end) = nullptr;
};

// Merges the records of a divided context in order and writes its rows of `out`.
void merge_splits(const Kernels& kernels, const AttentionArgs& args, const AttentionMerge& merge);

// The table of a family; an error when this machine cannot run it.
Result<const Kernels*> kernels_for(Isa isa);

}  // namespace tandem::kernels
