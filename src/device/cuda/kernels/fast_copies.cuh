// Fast kernels for embeddings, casts and gathers: see cooperation.cuh. Rows are copied by 16 bytes
// per thread, or by 4 if addresses ask for it, and converted by eight columns. run_fast returns
// nothing if an op needs the plain kernels.
#pragma once

#include <algorithm>

#include "device/cuda/kernels/cooperation.cuh"
#include "device/cuda/kernels/fast_rowwise.cuh"
#include "device/cuda/kernels/launch_blocks.cuh"
#include "device/cuda/kernels/rowwise.h"

namespace tandem::device::cuda {

// Row source_rows[r] of `source` becomes row target_rows[r] of `target`; without these, row r.
struct RowCopies {
  const void* source = nullptr;
  const int32_t* source_rows = nullptr;
  int64_t source_pitch = 0;  // bytes from row to row
  void* target = nullptr;
  const int32_t* target_rows = nullptr;
  int64_t target_pitch = 0;
  int64_t rows = 0;
  int64_t row_bytes = 0;

  // Whether rows can be copied by units of `bytes`.
  [[nodiscard]] bool divisible_by(int64_t bytes) const {
    const auto all = reinterpret_cast<uintptr_t>(source) | reinterpret_cast<uintptr_t>(target) |
                     static_cast<uintptr_t>(source_pitch | target_pitch | row_bytes);
    return rows <= 0 || all % static_cast<uintptr_t>(bytes) == 0;
  }
};

inline constexpr int kCopyThreads = 128;
inline constexpr int64_t kMaxGridRows = INT32_MAX;
inline constexpr int64_t kMaxGridColumns = 65535;

// Blocks that copy a row by units of `unit_bytes`, one for each thread.
inline unsigned copy_blocks(const RowCopies& of, int64_t unit_bytes) {
  return of.rows <= 0 || of.row_bytes <= 0 ? 0
                                           : blocks_for(of.row_bytes, unit_bytes * kCopyThreads);
}
// Whether a grid can hold the blocks, also with units of 4 bytes.
inline bool fits_grid(const RowCopies& of) {
  return of.rows <= kMaxGridRows && of.row_bytes <= kMaxGridColumns / 2 * kCopyThreads * 4;
}

// This thread's unit, by block number `block` of row blockIdx.x.
template <class Unit>
__device__ void copy_unit(const RowCopies& of, unsigned block) {
  const int64_t unit = int64_t{block} * kCopyThreads + threadIdx.x;
  if (unit * static_cast<int64_t>(sizeof(Unit)) >= of.row_bytes) {
    return;
  }
  const int64_t row = blockIdx.x;
  const int64_t from = of.source_rows == nullptr ? row : of.source_rows[row];
  const int64_t to = of.target_rows == nullptr ? row : of.target_rows[row];
  const auto* source = static_cast<const std::byte*>(of.source) + from * of.source_pitch;
  auto* target = static_cast<std::byte*>(of.target) + to * of.target_pitch;
  reinterpret_cast<Unit*>(target)[unit] = reinterpret_cast<const Unit*>(source)[unit];
}

// Two copies of the same number of rows; either may be empty.
template <class Unit>
struct CopyRows {
  static constexpr int kMaxThreads = kCopyThreads;
  RowCopies first;
  RowCopies second;
  unsigned first_blocks = 0;

  __device__ void operator()() const {
    if (blockIdx.y < first_blocks) {
      copy_unit<Unit>(first, blockIdx.y);
    } else {
      copy_unit<Unit>(second, blockIdx.y - first_blocks);
    }
  }
};

template <class Unit>
cudaError_t launch_copies(cudaStream_t stream, const RowCopies& first, const RowCopies& second) {
  constexpr auto kUnitBytes = static_cast<int64_t>(sizeof(Unit));
  const unsigned first_blocks = copy_blocks(first, kUnitBytes);
  const unsigned blocks = first_blocks + copy_blocks(second, kUnitBytes);
  const dim3 grid(static_cast<unsigned>(std::max(first.rows, second.rows)), blocks);
  return blocks == 0 ? cudaSuccess
                     : launch_blocks(stream, CopyRows<Unit>{first, second, first_blocks}, grid,
                                     kCopyThreads);
}

inline FastResult copy_rows(cudaStream_t stream, const RowCopies& first,
                            const RowCopies& second = {}) {
  if (!fits_grid(first) || !fits_grid(second)) {
    return std::nullopt;
  }
  const auto divisible_by = [&](int64_t bytes) {
    return first.divisible_by(bytes) && second.divisible_by(bytes);
  };
  if (divisible_by(sizeof(uint4))) {
    return launch_copies<uint4>(stream, first, second);
  }
  return divisible_by(sizeof(uint32_t)) ? FastResult(launch_copies<uint32_t>(stream, first, second))
                                        : std::nullopt;
}

// ---------------------------------------------------------------- gathers

inline FastResult run_fast(cudaStream_t stream, const RowGatherOp& op) {
  const int64_t bytes = op.stride * int64_t{sizeof(float)};
  return copy_rows(stream, {.source = op.x,
                            .source_rows = op.rows,
                            .source_pitch = bytes,
                            .target = op.y,
                            .target_pitch = bytes,
                            .rows = op.count,
                            .row_bytes = bytes});
}

// ---------------------------------------------------------------- conversions

// Columns 0 .. columns - 1 of rows source_rows[r], or without these of row r, in another type.
template <class In, class Out>
struct ConvertRows {
  static constexpr int kMaxThreads = 128;
  const void* x = nullptr;
  const int32_t* source_rows = nullptr;
  int64_t x_stride = 0;
  void* y = nullptr;
  int64_t y_stride = 0;
  int64_t columns = 0;

  __device__ void operator()() const {
    const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * 8;
    if (column >= columns) {
      return;
    }
    const int64_t row = blockIdx.x;
    const int64_t from = source_rows == nullptr ? row : source_rows[row];
    const Eight eight =
        load_columns<true>(static_cast<const In*>(x) + from * x_stride, column, columns);
    store_columns<true>(static_cast<Out*>(y) + row * y_stride, column, columns, eight);
  }
};

inline FastResult convert_rows(cudaStream_t stream, const CastOp& op, const int32_t* source_rows) {
  if (op.rows <= 0 || op.columns <= 0) {
    return cudaSuccess;
  }
  if (op.x_type == ElementType::kF16 || op.rows > kMaxGridRows ||
      op.columns > kMaxGridColumns * 128 * 8 ||
      !rows_aligned(op.x, op.x_stride * element_bytes(op.x_type)) ||
      !rows_aligned(op.y, op.y_stride * element_bytes(op.y_type))) {
    return std::nullopt;
  }
  const dim3 grid(static_cast<unsigned>(op.rows), blocks_for(op.columns, 8 * 128));
  return with_types(op.x_type, op.y_type, [&](auto in, auto out) {
    using Kernel = ConvertRows<decltype(in), decltype(out)>;
    return launch_blocks(stream,
                         Kernel{.x = op.x,
                                .source_rows = source_rows,
                                .x_stride = op.x_stride,
                                .y = op.y,
                                .y_stride = op.y_stride,
                                .columns = op.columns},
                         grid, Kernel::kMaxThreads);
  });
}

inline FastResult run_fast(cudaStream_t stream, const CastOp& op) {
  return convert_rows(stream, op, nullptr);
}
inline FastResult run_fast(cudaStream_t stream, const EmbedOp& op) {
  return convert_rows(stream,
                      {.x = op.table.data,
                       .x_type = op.table.format.type,
                       .x_stride = op.table.k,
                       .rows = op.rows,
                       .columns = op.table.k,
                       .y = op.y,
                       .y_type = op.y_type,
                       .y_stride = op.y_stride},
                      op.ids);
}

}  // namespace tandem::device::cuda
