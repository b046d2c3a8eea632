// The record in which a split of attention is kept until it is merged, and how the records of a
// divided context are ordered. Shared by the planner and the kernels of every family.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"

namespace tandem::kernels {

// One record per (split, row, head of the group): floats max, sum, then, aligned for vectors, the
// weighted V [padded_head_dim].
inline constexpr int64_t kPartialMax = 0;
inline constexpr int64_t kPartialSum = 1;
inline constexpr int64_t kPartialValues = 16;

constexpr int64_t partial_record_floats(const KvLayout& layout) {
  return kPartialValues + layout.padded_head_dim;
}

// Records of one split of one row, all heads of the group. A divided unit of `rows` rows keeps
// split s, row r, head h at record ((s * rows + r) * group + h).
constexpr int64_t query_group(const AttentionArgs& args) {
  return args.heads / args.layout.kv_heads;
}

constexpr int64_t split_floats(const AttentionArgs& args, int64_t rows) {
  return rows * query_group(args) * partial_record_floats(args.layout);
}

// Tokens that a row of the slice attends to, its own included.
constexpr int64_t row_context_tokens(const AttentionSlice& slice, int64_t row) {
  return slice.first_position + (row - slice.row_begin) + 1;
}

constexpr int64_t splits_of(int64_t context_tokens) {
  return (context_tokens + kSplitTokens - 1) / kSplitTokens;
}

// The first token that a row with this context attends to.
constexpr int64_t first_token(const AttentionArgs& args, int64_t context_tokens) {
  return args.window == 0 ? 0 : std::max<int64_t>(context_tokens - args.window, 0);
}

// Tokens that a row attends to: begin .. end - 1, in the whole context or counted within a split.
struct TokenRange {
  int64_t begin = 0;
  int64_t end = 0;
  [[nodiscard]] constexpr bool empty() const { return begin >= end; }
};

constexpr TokenRange row_tokens(const AttentionArgs& args, const AttentionSlice& slice,
                                int64_t row) {
  const int64_t context_tokens = row_context_tokens(slice, row);
  return {first_token(args, context_tokens), context_tokens};
}

constexpr TokenRange in_split(const TokenRange& tokens, int64_t split) {
  const int64_t start = split * kSplitTokens;
  return {std::max<int64_t>(tokens.begin - start, 0),
          std::min<int64_t>(tokens.end - start, kSplitTokens)};
}

}  // namespace tandem::kernels
