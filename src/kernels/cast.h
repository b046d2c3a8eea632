// Rows of numbers in another element type. One function for every family: a conversion has one
// right result, so all would give the same bits.
#pragma once

#include <cstdint>

#include "base/element_type.h"

namespace tandem::kernels {

// Round to nearest even; NaN stays NaN. What lies between the columns and the stride of y stays.
struct CastArgs {
  const void* x = nullptr;  // [rows, x_stride], type x_type: kF32, kBF16 or kF16
  ElementType x_type = ElementType::kF32;
  int64_t x_stride = 0;  // in elements
  int64_t rows = 0;
  int64_t columns = 0;  // of each row
  void* y = nullptr;    // [rows, y_stride], type y_type: kF32 or kBF16; must not overlap x
  ElementType y_type = ElementType::kBF16;
  int64_t y_stride = 0;

  friend bool operator==(const CastArgs&, const CastArgs&) = default;
};

void cast(const CastArgs& args, int64_t row_begin, int64_t row_end);

}  // namespace tandem::kernels
