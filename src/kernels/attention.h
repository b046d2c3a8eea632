// Paged causal attention over the KV layout of kv_layout.h, for decode rows and prefill chunks
// alike. Arguments and the division into tasks; the kernels are in kernels.h.
//
// One rule makes results independent of company, chunking, threads and tiers: a (row, head) is
// summed per split of 256 tokens of its own context, each split giving (max, sum, weighted V) in
// fp32, and splits are merged in order of position. So a prefill row equals, bit for bit, the
// decode row of the same position. With a window only its tokens are read; splits stay at multiples
// of 256, so the first one of a row may be a part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/element_type.h"
#include "kernels/kv_layout.h"

namespace tandem::kernels {

// Consecutive rows of one sequence. Row r attends to positions 0 .. first_position + (r -
// row_begin), its own included; with a window to the last `window` of these.
struct AttentionSlice {
  int32_t row_begin = 0;
  int32_t row_count = 0;
  int32_t first_position = 0;
  const int32_t* block_table = nullptr;  // [ceil(context / block_tokens)] block ids
};

struct AttentionArgs {
  const float* q = nullptr;       // [rows, heads, padded_head_dim], after RoPE, not scaled
  const std::byte* kv = nullptr;  // the pool's start
  KvLayout layout;
  int32_t layer = 0;
  int32_t heads = 0;   // a multiple of layout.kv_heads
  float scale = 0.0F;  // 1/sqrt(head_dim)
  int32_t window = 0;  // tokens that a row attends to at most, its own included; 0: all
  const AttentionSlice* slices = nullptr;
  int32_t slice_count = 0;
  void* out = nullptr;     // [rows, out_stride], type out_type: the out-projection's
                           // input; padding dims are zero
  int64_t out_stride = 0;  // in elements, >= heads * padded_head_dim
  ElementType out_type = ElementType::kBF16;
  float* partials = nullptr;   // workspace for split tasks
  int64_t partial_floats = 0;  // as many as fit there; 0: no context is divided
};

// One unit of work for one thread: rows x one kv head (all its query heads) x a run of splits.
struct AttentionTask {
  int32_t slice = 0;
  int32_t kv_head = 0;
  int32_t row_begin = 0;  // absolute rows of the step
  int32_t row_count = 0;
  int32_t split_begin = 0;
  int32_t split_count = 0;
  int64_t partial_offset =
      -1;  // floats into `partials`; -1: the task covers its rows' whole context and writes `out`
  int64_t cost = 0;  // a guess, to compare with other tasks of the plan
};

// Rows of tasks whose context was divided; merging reads the partials of each row's splits in order
// and writes `out`.
struct AttentionMerge {
  int32_t slice = 0;
  int32_t kv_head = 0;
  int32_t row_begin = 0;
  int32_t row_count = 0;
  int32_t split_begin = 0;  // the split of the first partial
  int32_t split_count = 0;
  int64_t partial_offset = 0;
};

struct AttentionPlan {
  std::vector<AttentionTask> tasks;  // any order, any thread
  // Tasks that one thread had better take at once, as the end of each run in `tasks`: long runs
  // first, short ones last, so that threads seldom change over to K and V that nobody asked for
  // and yet end together.
  std::vector<int32_t> run_ends;
  std::vector<AttentionMerge> merges;  // after all tasks
  int64_t partial_floats = 0;
};

// Room for partials with which `threads` threads share any step's attention well, of contexts up to
// `context_tokens`: for 16 queries of such contexts for each thread, or one row of a kv head where
// that is more. None for one thread.
int64_t partial_room(const KvLayout& layout, int32_t heads, int64_t context_tokens,
                     int32_t threads);

// Divides the work into tasks of about equal cost (KV read and queries computed), most of them
// large and the last ones a quarter of a thread's share. A context is divided only where there are
// too few (rows, kv head) units, and only as far as args.partial_floats go: beyond that its rows
// are. Reuses the plan's memory. The result of the attention does not depend on the division.
void plan_attention(const AttentionArgs& args, int32_t threads, AttentionPlan& plan);

// The tasks of a run.
inline std::span<const AttentionTask> run_of(const AttentionPlan& plan, size_t run) {
  const auto begin = static_cast<size_t>(run == 0 ? 0 : plan.run_ends[run - 1]);
  return std::span(plan.tasks).subspan(begin, static_cast<size_t>(plan.run_ends[run]) - begin);
}

}  // namespace tandem::kernels
