// Groups of depths of rows of x for products with quantised weights: sums, and rows rounded to
// int8. Plain loops, for every target.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/gemm.h"
#include "kernels/quantize.h"

namespace tandem::kernels::portable {

inline constexpr int64_t kXDepths = 16;  // of one row side by side in scratch

// Copies rows [row, row + count) to `to` rounded to int8, as integers in fp32
// [k / 16][count][16], and the groups' sums and scales to `sums` and
// `scales`, which are [count][groups].
inline void copy_rounded_rows(const GemmArgs& args, int64_t row, int count, float* to, float* sums,
                              float* scales) {
  const int64_t groups = args.w.k / kQuantizedGroup;
  for (int r = 0; r < count; ++r) {
    const auto* x = static_cast<const BFloat16*>(args.x) + (row + r) * args.x_stride;
    float* own = to + r * kXDepths;
    for (int64_t group = 0; group < groups; ++group, x += kQuantizedGroup) {
      BFloat16 numbers[kQuantizedGroup];
      std::copy_n(x, kQuantizedGroup, numbers);
      const RoundedGroup rounded = round_group(numbers);
      *sums++ = rounded.element_sum();
      *scales++ = rounded.scale;
      for (int64_t i = 0; i < kQuantizedGroup; i += kXDepths, own += count * kXDepths) {
        std::copy_n(rounded.values + i, kXDepths, own);
      }
    }
  }
}

inline void sum_groups(const GemmArgs& args, int64_t row, int64_t rows, float* to) {
  const int64_t groups = args.w.k / kQuantizedGroup;
  for (int64_t r = 0; r < rows; ++r) {
    group_sums(static_cast<const BFloat16*>(args.x) + (row + r) * args.x_stride, groups,
               to + r * groups);
  }
}

}  // namespace tandem::kernels::portable
