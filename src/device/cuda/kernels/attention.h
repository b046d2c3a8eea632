// Paged attention in two passes: a record for each split of 256 tokens of a (row, head), then the
// records merged in order of position. See elements.h for what a kernel is, kernels/attention.h for
// the rule that makes results independent of company and chunking.
#pragma once

#include <cmath>
#include <cstddef>

#include "device/cuda/kernels/elements.h"
#include "device/cuda/kernels/kv_move.h"
#include "device/ops.h"
#include "kernels/attention.h"
#include "kernels/attention_partial.h"

namespace tandem::device::cuda {

// A record is followed by the scores of its split.
constexpr int64_t record_floats(const kernels::KvLayout& layout) {
  return kernels::partial_record_floats(layout) + kernels::kSplitTokens;
}

// The tokens of one split of one (row, head).
struct SplitTokens {
  const kernels::AttentionSlice& slice;
  int64_t first = 0;  // position where the split begins
  kernels::TokenRange range;
  int64_t kv_head = 0;
};

// scores[t] = q times the keys of the split's tokens; returns the largest.
template <class Q, class T>
TANDEM_ANYWHERE float score_tokens(const kernels::AttentionArgs& args, const SplitTokens& tokens,
                                   const Q* q, float* scores, const T* pool) {
  kernels::KvLayout layout = args.layout;
  layout.type = sizeof(T) == sizeof(float) ? ElementType::kF32 : ElementType::kBF16;
  float max = -INFINITY;
  for (int64_t t = tokens.range.begin; t < tokens.range.end; ++t) {
    const int64_t position = tokens.first + t;
    const int64_t block = tokens.slice.block_table[position / layout.block_tokens];
    const int64_t slot = position % layout.block_tokens;
    const T* key = pool + layout.key_offset(block, args.layer, tokens.kv_head) /
                              static_cast<int64_t>(sizeof(T));
    float score = 0.0F;
    for (int64_t dim = 0; dim < layout.padded_head_dim; ++dim) {
      score += widened(q[dim]) * args.scale * widened(key[layout.key_element(slot, dim)]);
    }
    scores[t] = score;
    max = std::fmax(max, score);
  }
  return max;
}

// values[dim] = the sum over the split's tokens of their V weighted by weights[t].
template <class T>
TANDEM_ANYWHERE void sum_values(const kernels::AttentionArgs& args, const SplitTokens& tokens,
                                const float* weights, float* values, const T* pool) {
  kernels::KvLayout layout = args.layout;
  layout.type = sizeof(T) == sizeof(float) ? ElementType::kF32 : ElementType::kBF16;
  constexpr int64_t kDims = 16;  // a divisor of kHeadDimMultiple
  for (int64_t dim = 0; dim < layout.padded_head_dim; dim += kDims) {
    float sums[kDims] = {};
    for (int64_t t = tokens.range.begin; t < tokens.range.end; ++t) {
      const int64_t position = tokens.first + t;
      const int64_t block = tokens.slice.block_table[position / layout.block_tokens];
      const int64_t slot = position % layout.block_tokens;
      const T* value = pool + layout.value_offset(block, args.layer, tokens.kv_head) /
                                  static_cast<int64_t>(sizeof(T));
      for (int64_t d = 0; d < kDims; ++d) {
        sums[d] += weights[t] * widened(value[layout.value_element(slot, dim + d)]);
      }
    }
    for (int64_t d = 0; d < kDims; ++d) {
      values[dim + d] = sums[d];
    }
  }
}

// `record` gets the maximum, the sum of exp(score - maximum) and the V vectors weighted by it;
// `scores` [kSplitTokens] is scratch.
template <class Q>
TANDEM_ANYWHERE void attend_split(const kernels::AttentionArgs& args, const SplitTokens& tokens,
                                  const Q* q, float* record, float* scores) {
  with_elements(args.kv, args.layout.type, [&](const auto* pool) {
    const float max = score_tokens(args, tokens, q, scores, pool);
    float sum = 0.0F;
    for (int64_t t = tokens.range.begin; t < tokens.range.end; ++t) {
      scores[t] = std::exp(scores[t] - max);
      sum += scores[t];
    }
    sum_values(args, tokens, scores, record + kernels::kPartialValues, pool);
    record[kernels::kPartialMax] = max;
    record[kernels::kPartialSum] = sum;
  });
}

// (row, head) pairs of a step whose records fit the workspace together. Pair p is row p / heads.
struct AttentionPairs {
  kernels::AttentionArgs args;  // but q; partials: [pairs, splits] records of record_floats()
  const void* q = nullptr;
  ElementType q_type = ElementType::kF32;
  int64_t first = 0;
  int64_t pairs = 0;
  int64_t splits = 0;  // of any row, at most

  [[nodiscard]] TANDEM_ANYWHERE float* record(int64_t pair, int64_t split) const {
    return args.partials + ((pair - first) * splits + split) * record_floats(args.layout);
  }
  // The slice of a row; null: the row is in none and is left alone.
  [[nodiscard]] TANDEM_ANYWHERE const kernels::AttentionSlice* slice_of(int64_t row) const {
    for (int32_t i = 0; i < args.slice_count; ++i) {
      const kernels::AttentionSlice& slice = args.slices[i];
      if (row >= slice.row_begin && row < slice.row_begin + slice.row_count) {
        return &slice;
      }
    }
    return nullptr;
  }
};

// An index is a split of a pair.
struct AttendSplits {
  AttentionPairs on;
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return on.pairs * on.splits; }
  TANDEM_ANYWHERE void operator()(int64_t i) const {
    const kernels::AttentionArgs& args = on.args;
    const int64_t pair = on.first + i / on.splits;
    const int64_t row = pair / args.heads;
    const kernels::AttentionSlice* slice = on.slice_of(row);
    if (slice == nullptr) {
      return;
    }
    const kernels::TokenRange context = kernels::row_tokens(args, *slice, row);
    const int64_t split = context.begin / kernels::kSplitTokens + i % on.splits;
    const kernels::TokenRange tokens = kernels::in_split(context, split);
    if (tokens.empty()) {
      return;
    }
    float* record = on.record(pair, i % on.splits);
    const SplitTokens own{.slice = *slice,
                          .first = split * kernels::kSplitTokens,
                          .range = tokens,
                          .kv_head = pair % args.heads / kernels::query_group(args)};
    with_elements(on.q, on.q_type, [&](const auto* q) {
      attend_split(args, own, q + pair * args.layout.padded_head_dim, record,
                   record + kernels::partial_record_floats(args.layout));
    });
  }
};

// An index is a dimension of a pair's result.
struct MergeSplits {
  AttentionPairs on;
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const {
    return on.pairs * on.args.layout.padded_head_dim;
  }
  TANDEM_ANYWHERE void operator()(int64_t i) const {
    const kernels::AttentionArgs& args = on.args;
    const int64_t width = args.layout.padded_head_dim;
    const int64_t pair = on.first + i / width;
    const int64_t dim = i % width;
    const int64_t row = pair / args.heads;
    const kernels::AttentionSlice* slice = on.slice_of(row);
    if (slice == nullptr) {
      return;
    }
    const kernels::TokenRange context = kernels::row_tokens(args, *slice, row);
    const int64_t records = kernels::splits_of(context.end) - context.begin / kernels::kSplitTokens;
    const float* state = on.record(pair, 0);
    float max = state[kernels::kPartialMax];
    float sum = state[kernels::kPartialSum];
    float value = state[kernels::kPartialValues + dim];
    for (int64_t s = 1; s < records; ++s) {
      const float* record = on.record(pair, s);
      const float larger = std::fmax(max, record[kernels::kPartialMax]);
      const float keep = std::exp(max - larger);
      const float add = std::exp(record[kernels::kPartialMax] - larger);
      max = larger;
      sum = sum * keep + record[kernels::kPartialSum] * add;
      value = value * keep + record[kernels::kPartialValues + dim] * add;
    }
    store_element(args.out, args.out_type, row * args.out_stride + pair % args.heads * width + dim,
                  dim < args.layout.head_dim ? value / sum : 0.0F);
  }
};

// The arguments of an op's kernels. The caller sets q, `partials` and the pairs.
inline kernels::AttentionArgs kernel_args(const AttentionOp& op) {
  kernels::AttentionArgs args;
  args.kv = op.kv;
  args.layout = gpu_layout(op.batch.layout);
  args.layer = op.layer;
  args.heads = op.batch.heads;
  args.scale = op.scale;
  args.window = op.batch.window;
  args.slices = op.batch.slices;
  args.slice_count = op.batch.shape.slices;
  args.out = op.out;
  args.out_stride = op.out_stride;
  args.out_type = op.out_type;
  return args;
}

// Splits that a row with a context of at most so many tokens touches, at most.
constexpr int64_t most_splits(int64_t context_tokens, int64_t window) {
  const int64_t all = kernels::splits_of(context_tokens);
  if (window == 0) {
    return all;
  }
  const int64_t touched = kernels::splits_of(window) + 1;
  return touched < all ? touched : all;
}

}  // namespace tandem::device::cuda
