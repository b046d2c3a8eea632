// The input of FlashInfer's kernels that the executor lays out in another way. A kernel as in
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

}  // namespace tandem::device::cuda
