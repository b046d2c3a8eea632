// Merging of the records of divided contexts, for the kernels of every family.
#include "kernels/attention_partial.h"
#include "kernels/kernels.h"

namespace tandem::kernels {

void merge_splits(const Kernels& kernels, const AttentionArgs& args, const AttentionMerge& merge) {
  const AttentionSlice& slice = args.slices[merge.slice];
  const int64_t group = query_group(args);
  const int64_t split_stride = split_floats(args, merge.row_count);
  for (int64_t r = 0; r < merge.row_count; ++r) {
    const int64_t row = merge.row_begin + r;
    const TokenRange context = row_tokens(args, slice, row);
    const int64_t first = context.begin / kSplitTokens;
    for (int64_t h = 0; h < group; ++h) {
      float* state = args.partials + merge.partial_offset +
                     (first - merge.split_begin) * split_stride +
                     (r * group + h) * partial_record_floats(args.layout);
      for (int64_t split = 1; split < splits_of(context.end) - first; ++split) {
        kernels.fold(state, state + split * split_stride, args.layout.padded_head_dim);
      }
      kernels.write_attended(args, row, merge.kv_head * group + h, state);
    }
  }
}

}  // namespace tandem::kernels
