// Inputs of FlashInfer's kernels that the executor lays out in another way. Kernels as in
// elements.h.
#pragma once

#include <cstdint>

#include "device/cuda/kernels/elements.h"
#include "kernels/attention.h"

namespace tandem::device::cuda {

// The block tables of all slices one behind the other. An index is a place in them.
struct PackTables {
  const kernels::AttentionSlice* slices = nullptr;  // [slice_count]
  int64_t slice_count = 0;
  const int32_t* page_starts = nullptr;  // [slice_count + 1]
  int64_t pages = 0;                     // page_starts[slice_count]
  int32_t* packed = nullptr;             // [pages]

  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return pages; }
  TANDEM_ANYWHERE void operator()(int64_t i) const {
    int64_t slice = 0;  // the last that begins at i or before
    for (int64_t end = slice_count; end - slice > 1;) {
      const int64_t middle = (slice + end) / 2;
      (page_starts[middle] <= i ? slice : end) = middle;
    }
    packed[i] = slices[slice].block_table[i - page_starts[slice]];
  }
};

// Elements of whole rows, rounded to bf16.
struct RoundQueries {
  const float* q = nullptr;
  BFloat16* rounded = nullptr;
  int64_t elements = 0;

  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return elements; }
  TANDEM_ANYWHERE void operator()(int64_t i) const { rounded[i] = f32_to_bf16(q[i]); }
};

}  // namespace tandem::device::cuda
