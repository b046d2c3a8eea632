// Fast kernels for the way of visitors' rows to the other tier and back: see cooperation.cuh. Both
// halves of an op, the row of attention and the residual, are one launch: beside a layer's other
// launches the time of a launch counts more than that of the bytes.
#pragma once

#include "device/cuda/kernels/fast_copies.cuh"
#include "device/cuda/kernels/fast_rowwise.cuh"

namespace tandem::device::cuda {

struct RouteArgs : kernels::RopeRouteArgs {
  RowCopies residuals;
  bool by_sixteen = false;  // bytes; else by four
};

// The last blocks of a row copy its residual.
template <int kWidth, class Element>
struct FastRopeRoute {
  static constexpr int kMaxThreads = kHeadThreads * kBlockHeads;
  static_assert(kMaxThreads == kCopyThreads);
  RouteArgs args;

  __device__ void operator()() const {
    const unsigned copy_block = blockIdx.y - head_blocks(args);
    if (blockIdx.y < head_blocks(args)) {
      route_heads();
    } else if (args.by_sixteen) {
      copy_unit<uint4>(args.residuals, copy_block);
    } else {
      copy_unit<uint32_t>(args.residuals, copy_block);
    }
  }

 private:
  __device__ void route_heads() const {
    const int64_t row = blockIdx.x;
    const int64_t width = args.layout.padded_head_dim;
    const int32_t kv_heads = args.layout.kv_heads;
    const kernels::RoutedRow routed(args.layout, args.heads);
    const PartOfBlock own(args.heads + 2 * kv_heads);
    const bool is_query = own.part < args.heads;
    const bool is_key = own.part < args.heads + kv_heads;
    std::byte* const begin = args.ring + args.ring_rows[row] * routed.bytes();
    std::byte* const to =
        begin + (is_query ? 0 : (is_key ? routed.key_offset() : routed.value_offset()));
    const int64_t first =
        width * (own.part - (is_query ? 0 : args.heads + (is_key ? 0 : kv_heads)));
    const auto element = [first](int64_t at) { return first + at; };
    rotate_head<kWidth>(args, row, own.part, [&]<int kDims>(int64_t dim, const Dims<kDims>& x) {
      if (!own.real) {
        return;
      }
      if (is_query) {
        store_dims<kDims, float>(to, element, dim, x);
      } else {
        store_dims<kDims, Element>(to, element, dim, x);
      }
    });
  }
};

inline FastResult run_fast(cudaStream_t stream, const RopeRouteOp& op) {
  if (op.rows <= 0) {
    return cudaSuccess;
  }
  const RowCopies residuals{.source = op.residual,
                            .source_pitch = op.residual_stride * int64_t{sizeof(float)},
                            .target = op.residual_store,
                            .target_rows = op.residual_slots,
                            .target_pitch = op.store_stride * int64_t{sizeof(float)},
                            .rows = op.rows,
                            .row_bytes = op.residual_columns * int64_t{sizeof(float)}};
  if (!fits_grid(residuals)) {
    return std::nullopt;
  }
  const bool by_sixteen = residuals.divisible_by(sizeof(uint4));
  const RouteArgs args{op, residuals, by_sixteen};
  return launch_heads<FastRopeRoute>(
      stream, args, copy_blocks(residuals, by_sixteen ? sizeof(uint4) : sizeof(uint32_t)));
}

inline FastResult run_fast(cudaStream_t stream, const TailGatherOp& op) {
  const RowCopies attended{.source = op.returns,
                           .source_rows = op.return_rows,
                           .source_pitch = op.attended_row_bytes,
                           .target = op.attended,
                           .target_pitch = op.attended_pitch_bytes,
                           .rows = op.attended == nullptr ? 0 : op.rows,
                           .row_bytes = op.attended_row_bytes};
  const RowCopies residuals{.source = op.residual_store,
                            .source_rows = op.residual_slots,
                            .source_pitch = op.store_stride * int64_t{sizeof(float)},
                            .target = op.residual,
                            .target_pitch = op.residual_stride * int64_t{sizeof(float)},
                            .rows = op.residual == nullptr ? 0 : op.rows,
                            .row_bytes = op.residual_columns * int64_t{sizeof(float)}};
  return copy_rows(stream, attended, residuals);
}

}  // namespace tandem::device::cuda
