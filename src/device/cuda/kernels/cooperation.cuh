// What the fast kernels of the CUDA back end share. A fast kernel is a struct of arguments whose
// operator()() is the work of one thread of a block: threads of a block share memory and wait for
// each other, blocks do neither. A kernel with a type Shared gets the block's memory of that type,
// in which nothing is set. launch_blocks runs it.
//
// Sums have a fixed order, so runs repeat bit for bit, and a row's result depends on that row
// alone. Columns are read and written eight at a time, by 16 bytes where addresses allow it.
// The plain kernels beside these define the right results.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "base/element_type.h"

namespace tandem::device::cuda {

inline constexpr int kWarpThreads = 32;
inline constexpr unsigned kWholeWarp = 0xffffffffU;
inline constexpr int64_t kVectorBytes = 16;

inline bool is_aligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % kVectorBytes == 0;
}
// Of a matrix: whether all its rows begin at multiples of 16 bytes.
inline bool rows_aligned(const void* data, int64_t stride_bytes) {
  return is_aligned(data) && stride_bytes % kVectorBytes == 0;
}

// ---------------------------------------------------------------- eight columns

struct Eight {
  float at[8];
};

__device__ inline float from_bits_low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float from_bits_high(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000U);
}
__device__ inline uint32_t bf16_pair(float low, float high) {
  return uint32_t{f32_to_bf16(low)} | uint32_t{f32_to_bf16(high)} << 16;
}

// From an aligned address.
__device__ inline Eight load_eight(const float* from) {
  const float4 a = *reinterpret_cast<const float4*>(from);
  const float4 b = *reinterpret_cast<const float4*>(from + 4);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
__device__ inline Eight load_eight(const BFloat16* from) {
  const uint4 bits = *reinterpret_cast<const uint4*>(from);
  return {{from_bits_low(bits.x), from_bits_high(bits.x), from_bits_low(bits.y),
           from_bits_high(bits.y), from_bits_low(bits.z), from_bits_high(bits.z),
           from_bits_low(bits.w), from_bits_high(bits.w)}};
}
__device__ inline void store_eight(float* to, const Eight& x) {
  *reinterpret_cast<float4*>(to) = make_float4(x.at[0], x.at[1], x.at[2], x.at[3]);
  *reinterpret_cast<float4*>(to + 4) = make_float4(x.at[4], x.at[5], x.at[6], x.at[7]);
}
__device__ inline void store_eight(BFloat16* to, const Eight& x) {
  *reinterpret_cast<uint4*>(to) =
      make_uint4(bf16_pair(x.at[0], x.at[1]), bf16_pair(x.at[2], x.at[3]),
                 bf16_pair(x.at[4], x.at[5]), bf16_pair(x.at[6], x.at[7]));
}

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(BFloat16 x) { return bf16_to_f32(x); }
__device__ inline void narrow(float* to, float x) { *to = x; }
__device__ inline void narrow(BFloat16* to, float x) { *to = f32_to_bf16(x); }

// Columns `column` .. `column` + 7 of a row with `columns`; zeros past its end.
template <bool kAligned, class Element>
__device__ Eight load_columns(const Element* row, int64_t column, int64_t columns) {
  if (kAligned && column + 8 <= columns) {
    return load_eight(row + column);
  }
  Eight x;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    x.at[i] = column + i < columns ? widen(row[column + i]) : 0.0F;
  }
  return x;
}
template <bool kAligned, class Element>
__device__ void store_columns(Element* row, int64_t column, int64_t columns, const Eight& x) {
  if (kAligned && column + 8 <= columns) {
    store_eight(row + column, x);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (column + i < columns) {
      narrow(row + column + i, x.at[i]);
    }
  }
}

// ---------------------------------------------------------------- sums

// Over kLanes neighbouring threads of a warp, a power of two: every one gets the same bits. The
// whole warp must call it.
template <int kLanes = kWarpThreads, class Number>
__device__ Number lanes_sum(Number x) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(kWholeWarp, x, distance);
  }
  return x;
}

// Over the block, for every thread. `shared` has room for a number of each warp; it may be used
// again after the next barrier. The block has whole warps.
template <class Number>
__device__ Number block_sum(Number x, Number* shared) {
  x = lanes_sum(x);
  __syncthreads();
  if (threadIdx.x % kWarpThreads == 0) {
    shared[threadIdx.x / kWarpThreads] = x;
  }
  __syncthreads();
  Number sum{};
  for (unsigned warp = 0; warp < blockDim.x / kWarpThreads; ++warp) {
    sum += shared[warp];
  }
  return sum;
}

// The sum over this thread and the threads of lower index; `shared` as of block_sum.
template <class Number>
__device__ Number block_inclusive_sum(Number x, Number* shared) {
  const unsigned lane = threadIdx.x % kWarpThreads;
#pragma unroll
  for (unsigned distance = 1; distance < kWarpThreads; distance *= 2) {
    const Number below = __shfl_up_sync(kWholeWarp, x, distance);
    x = lane >= distance ? below + x : x;
  }
  __syncthreads();
  if (lane == kWarpThreads - 1) {
    shared[threadIdx.x / kWarpThreads] = x;
  }
  __syncthreads();
  Number before{};
  for (unsigned warp = 0; warp < threadIdx.x / kWarpThreads; ++warp) {
    before += shared[warp];
  }
  return before + x;
}

}  // namespace tandem::device::cuda
