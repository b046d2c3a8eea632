// Products and the layout of their weights: row-major [n, k] as checkpoints have them, padding
// included; of a matrix of gate and up, gate is the first half of the rows. See elements.h for what
// a kernel is.
//
// A result is summed over k in order by one index, so a row of y depends on its row of x alone.
#pragma once

#include <cmath>
#include <cstddef>
#include <tuple>

#include "device/cuda/kernels/elements.h"
#include "device/ops.h"
#include "kernels/pack_source.h"

namespace tandem::device::cuda {

// Where a part of a matrix begins, in rows.
constexpr int64_t first_row(const UploadOp& op) {
  return op.n_offset + (op.part == WeightPart::kUp ? op.target.n / 2 : 0);
}

// Rows row_begin .. row_begin + row_count - 1 of op.n.padded(), from a copy of the source in device
// memory that begins at its row `source_row`.
struct Upload {
  UploadOp op;
  const void* source = nullptr;
  int64_t source_row = 0;
  int64_t row_begin = 0;
  int64_t row_count = 0;
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return row_count * op.target.k; }
  TANDEM_ANYWHERE void operator()(int64_t i) const {
    const int64_t n = row_begin + i / op.target.k;
    const int64_t depth = i % op.target.k;
    const int64_t row = kernels::logical_index(op.n, n);
    const int64_t column = kernels::logical_index(op.k, depth);
    const float value =
        row < 0 || column < 0
            ? 0.0F
            : load_element(source, op.source_type, (row - source_row) * op.k.logical + column);
    store_element(op.target_data, op.target.format.type, (first_row(op) + n) * op.target.k + depth,
                  value);
  }
};

inline constexpr int64_t kRowTile = 8;  // rows of x that share a weight once it is read

// sums[r] = row r of x times column n of w; of rows past the last one, the last one's again.
template <class Product>
TANDEM_ANYWHERE void multiply(const Product& op, int64_t row, int64_t n, float (&sums)[kRowTile]) {
  with_elements(op.x, op.x_type, [&](const auto* all_x) {
    with_elements(op.w.data, op.w.format.type, [&](const auto* all_w) {
      const auto* w = all_w + n * op.w.k;
      const auto* x = all_x;
      int64_t offsets[kRowTile];
      for (int64_t r = 0; r < kRowTile; ++r) {
        offsets[r] = (row + r < op.rows ? row + r : op.rows - 1) * op.x_stride;
        sums[r] = 0.0F;
      }
      for (int64_t k = 0; k < op.w.k; ++k) {
        const float weight = widened(w[k]);
        for (int64_t r = 0; r < kRowTile; ++r) {
          sums[r] += widened(x[offsets[r] + k]) * weight;
        }
      }
    });
  });
}

constexpr int64_t row_tiles(int64_t rows) { return (rows + kRowTile - 1) / kRowTile; }

// Columns column_begin .. column_begin + columns - 1 of y. An index is a column of a tile of rows.
struct Gemm {
  GemmOp op;
  int64_t column_begin = 0;
  int64_t columns = 0;
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return row_tiles(op.rows) * columns; }
  TANDEM_ANYWHERE void operator()(int64_t i) const {
    const int64_t n = column_begin + i % columns;
    const int64_t row = i / columns * kRowTile;
    const int64_t rows = op.rows - row < kRowTile ? op.rows - row : kRowTile;
    float sums[kRowTile];
    multiply(op, row, n, sums);
    for (int64_t r = 0; r < rows; ++r) {
      const float sum = op.bias == nullptr ? sums[r] : sums[r] + op.bias[n];
      const int64_t at = (row + r) * op.y_stride + n;
      store_element(op.y, op.y_type, at,
                    op.accumulate ? load_element(op.y, op.y_type, at) + sum : sum);
    }
  }
};

TANDEM_ANYWHERE inline float silu_times(float gate, float up) {
  return gate / (1.0F + std::exp(-gate)) * up;
}

struct GateUp {
  GateUpOp op;
  int64_t column_begin = 0;  // of `activated`
  int64_t columns = 0;
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return row_tiles(op.rows) * columns; }
  TANDEM_ANYWHERE void operator()(int64_t i) const {
    const int64_t n = column_begin + i % columns;
    const int64_t row = i / columns * kRowTile;
    const int64_t rows = op.rows - row < kRowTile ? op.rows - row : kRowTile;
    float gates[kRowTile];
    float ups[kRowTile];
    multiply(op, row, n, gates);
    multiply(op, row, op.w.n / 2 + n, ups);
    for (int64_t r = 0; r < rows; ++r) {
      store_element(op.activated, op.x_type, (row + r) * op.activated_stride + n,
                    silu_times(gates[r], ups[r]));
    }
  }
};

// Some rows of a product with a matrix of gate and up: fp32 [row_count, w.n], gate first.
struct GateUpSums {
  const float* sums = nullptr;
  int64_t row_begin = 0;  // of x and `activated`
  int64_t row_count = 0;
};

struct SiluMul {
  GateUpOp op;
  GateUpSums of;
  [[nodiscard]] TANDEM_ANYWHERE int64_t count() const { return of.row_count * (op.w.n / 2); }
  TANDEM_ANYWHERE void operator()(int64_t i) const {
    const int64_t columns = op.w.n / 2;
    const int64_t row = i / columns;
    const int64_t column = i % columns;
    const float* sums = of.sums + row * op.w.n;
    store_element(op.activated, op.x_type, (of.row_begin + row) * op.activated_stride + column,
                  silu_times(sums[column], sums[columns + column]));
  }
};

inline auto kernels_of(const GemmOp& op) { return std::tuple{Gemm{op, 0, op.w.n}}; }
inline auto kernels_of(const GateUpOp& op) { return std::tuple{GateUp{op, 0, op.w.n / 2}}; }

}  // namespace tandem::device::cuda
