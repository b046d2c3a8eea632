// Fast kernels for the ops of rowwise.h and for SiluMul: see cooperation.cuh. run_fast(stream, op)
// returns nothing where an op's addresses or sizes need the plain kernels.
//
// RmsNorm: a block per row. RoPE: half a warp per head of a row. Copies, casts and SiluMul: 16
// bytes or eight columns per thread.
#pragma once

#include <algorithm>
#include <optional>

#include "device/cuda/kernels/cooperation.cuh"
#include "device/cuda/kernels/launch_blocks.cuh"
#include "device/cuda/kernels/products.h"
#include "device/cuda/kernels/rowwise.h"

namespace tandem::device::cuda {

// Null where the fast kernels do not take the op.
using FastResult = std::optional<cudaError_t>;

constexpr unsigned blocks_for(int64_t count, int64_t each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

// ---------------------------------------------------------------- norm

template <class In, class Out, bool kAligned>
struct FastRmsNorm {
  static constexpr int kMaxThreads = 512;
  struct Shared {
    float sums[kMaxThreads / kWarpThreads];
  };
  RmsNormOp op;

  __device__ void operator()(Shared& shared) const {
    const int64_t row = blockIdx.x;
    const In* x = static_cast<const In*>(op.x) + row * op.x_stride;
    Out* y = static_cast<Out*>(op.y) + row * op.y_stride;
    const int64_t first = int64_t{threadIdx.x} * 8;
    const int64_t step = int64_t{blockDim.x} * 8;
    // The first columns stay in registers, and their weights arrive while the sum is made.
    const Eight first_x = load_columns<kAligned>(x, first, op.hidden);
    const Eight first_weights = load_columns<kAligned>(op.weight, first, op.hidden);
    float squares = sum_of_squares(first_x);
    for (int64_t column = first + step; column < op.hidden; column += step) {
      squares += sum_of_squares(load_columns<kAligned>(x, column, op.hidden));
    }
    squares = block_sum(squares, shared.sums);
    const float factor = 1.0F / std::sqrt(squares / static_cast<float>(op.hidden) + op.epsilon);
    write(y, first, first_x, first_weights, factor);
    for (int64_t column = first + step; column < op.y_stride; column += step) {
      write(y, column, load_columns<kAligned>(x, column, op.hidden),
            load_columns<kAligned>(op.weight, column, op.hidden), factor);
    }
  }

 private:
  static __device__ float sum_of_squares(const Eight& x) {
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      sum += x.at[i] * x.at[i];
    }
    return sum;
  }
  __device__ void write(Out* y, int64_t column, const Eight& x, const Eight& weights,
                        float factor) const {
    Eight normed;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      // Past the end x is zero, which an infinite factor must not make NaN.
      normed.at[i] = column + i < op.hidden ? x.at[i] * factor * weights.at[i] : 0.0F;
    }
    store_columns<kAligned>(y, column, op.y_stride, normed);
  }
};

// Calls launch(element of In, element of Out) with values of the types.
template <class Launch>
cudaError_t with_types(ElementType in, ElementType out, const Launch& launch) {
  if (in == ElementType::kF32) {
    return out == ElementType::kF32 ? launch(float{}, float{}) : launch(float{}, BFloat16{});
  }
  return out == ElementType::kF32 ? launch(BFloat16{}, float{}) : launch(BFloat16{}, BFloat16{});
}

inline FastResult run_fast(cudaStream_t stream, const RmsNormOp& op) {
  if (op.rows <= 0) {
    return cudaSuccess;
  }
  const bool aligned = rows_aligned(op.x, op.x_stride * element_bytes(op.x_type)) &&
                       rows_aligned(op.y, op.y_stride * element_bytes(op.y_type)) &&
                       is_aligned(op.weight);
  const int64_t columns = std::max(op.hidden, op.y_stride);
  const auto threads = static_cast<unsigned>(
      std::clamp<int64_t>((columns + 255) / 256 * kWarpThreads, kWarpThreads, 512));
  const dim3 grid(static_cast<unsigned>(op.rows));
  return with_types(op.x_type, op.y_type, [&](auto in, auto out) {
    using In = decltype(in);
    using Out = decltype(out);
    return aligned ? launch_blocks(stream, FastRmsNorm<In, Out, true>{op}, grid, threads)
                   : launch_blocks(stream, FastRmsNorm<In, Out, false>{op}, grid, threads);
  });
}

// ---------------------------------------------------------------- RoPE

inline constexpr int kHeadThreads = 16;
inline constexpr int kBlockHeads = 8;

// kWidth neighbouring dims of a head, where kWidth is 4 or 1.
template <int kWidth>
struct Dims {
  float at[kWidth];
  static __device__ Dims load(const float* from) {
    Dims dims;
    if constexpr (kWidth == 4) {
      const float4 x = *reinterpret_cast<const float4*>(from);
      dims.at[0] = x.x, dims.at[1] = x.y, dims.at[2] = x.z, dims.at[3] = x.w;
    } else {
      dims.at[0] = *from;
    }
    return dims;
  }
};

// Where the dims of a head go: element(dim) of `to`, in any arrangement.
template <int kWidth, class Element>
__device__ void store_dims(std::byte* to, const auto& element, int64_t dim, const Dims<kWidth>& x) {
  auto* const elements = reinterpret_cast<Element*>(to);
  if constexpr (kWidth == 4) {
    const int64_t at[4] = {element(dim), element(dim + 1), element(dim + 2), element(dim + 3)};
    Element* const first = elements + at[0];
    const bool pairs = at[1] == at[0] + 1 && at[3] == at[2] + 1;
    const bool all = pairs && at[2] == at[0] + 2;
    const auto address = reinterpret_cast<uintptr_t>(first);
    if constexpr (sizeof(Element) == 4) {
      if (all && address % 16 == 0) {
        *reinterpret_cast<float4*>(first) = make_float4(x.at[0], x.at[1], x.at[2], x.at[3]);
        return;
      }
    } else {
      const uint32_t low = bf16_pair(x.at[0], x.at[1]);
      const uint32_t high = bf16_pair(x.at[2], x.at[3]);
      if (all && address % 8 == 0) {
        *reinterpret_cast<uint2*>(first) = make_uint2(low, high);
        return;
      }
      if (pairs && (address | reinterpret_cast<uintptr_t>(elements + at[2])) % 4 == 0) {
        *reinterpret_cast<uint32_t*>(first) = low;
        *reinterpret_cast<uint32_t*>(elements + at[2]) = high;
        return;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    narrow(elements + element(dim + i), x.at[i]);
  }
}

// The head `part` of a row, by half a warp. write(dim, Dims) gets the rotated head, padding zero.
template <int kWidth, class Args>
__device__ void rotate_head(const Args& args, int64_t row, int part, const auto& write) {
  const kernels::KvLayout& layout = args.layout;
  const int lane = static_cast<int>(threadIdx.x) % kHeadThreads;
  const int half = layout.head_dim / 2;
  const bool rotates = part < args.heads + layout.kv_heads;
  const float* x = args.qkv + row * args.qkv_stride + int64_t{part} * layout.padded_head_dim;
  const float* weight = !rotates ? nullptr : (part < args.heads ? args.q_norm : args.k_norm);
  float factor = 1.0F;
  if (args.q_norm != nullptr || args.k_norm != nullptr) {  // the whole warp, also for v
    float squares = 0.0F;
    for (int dim = lane * kWidth; dim < layout.head_dim; dim += kHeadThreads * kWidth) {
      const auto own = Dims<kWidth>::load(x + dim);
      for (int i = 0; i < kWidth; ++i) {
        squares += own.at[i] * own.at[i];
      }
    }
    squares = lanes_sum<kHeadThreads>(squares);
    factor = 1.0F / std::sqrt(squares / static_cast<float>(layout.head_dim) + args.norm_epsilon);
  }
  for (int dim = lane * kWidth; dim < half; dim += kHeadThreads * kWidth) {
    auto low = Dims<kWidth>::load(x + dim);
    auto high = Dims<kWidth>::load(x + dim + half);
    if (weight != nullptr) {
      const auto low_weight = Dims<kWidth>::load(weight + dim);
      const auto high_weight = Dims<kWidth>::load(weight + dim + half);
      for (int i = 0; i < kWidth; ++i) {
        low.at[i] = low.at[i] * factor * low_weight.at[i];
        high.at[i] = high.at[i] * factor * high_weight.at[i];
      }
    }
    if (rotates) {
      const auto cos = Dims<kWidth>::load(args.cos + row * half + dim);
      const auto sin = Dims<kWidth>::load(args.sin + row * half + dim);
      for (int i = 0; i < kWidth; ++i) {
        const float before = low.at[i];
        low.at[i] = before * cos.at[i] - high.at[i] * sin.at[i];
        high.at[i] = high.at[i] * cos.at[i] + before * sin.at[i];
      }
    }
    write(dim, low);
    write(dim + half, high);
  }
  for (int dim = layout.head_dim + lane; dim < layout.padded_head_dim; dim += kHeadThreads) {
    write(dim, Dims<1>{{0.0F}});
  }
}

// Which head the half warp has: in the grid, x is the row. Those past the last head work on that
// one again, unwritten, since a warp sums together.
struct PartOfBlock {
  int part = 0;
  bool real = true;
  __device__ explicit PartOfBlock(int parts)
      : part(static_cast<int>(blockIdx.y * kBlockHeads + threadIdx.x / kHeadThreads)) {
    real = part < parts;
    part = real ? part : parts - 1;
  }
};

template <int kWidth, class Element>
struct FastRopeWrite {
  static constexpr int kMaxThreads = kHeadThreads * kBlockHeads;
  kernels::RopeWriteArgs args;

  __device__ void operator()() const {
    const kernels::KvLayout& layout = args.layout;
    const int64_t row = blockIdx.x;
    const PartOfBlock own(args.heads + 2 * layout.kv_heads);
    const bool is_query = own.part < args.heads;
    const bool is_key = own.part < args.heads + layout.kv_heads;
    const int64_t slot = args.slots[row];
    std::byte* to = nullptr;
    if (is_query) {
      to = static_cast<std::byte*>(args.q) +
           (row * args.heads + own.part) * layout.padded_head_dim * element_bytes(args.q_type);
    } else {
      const int64_t block = args.blocks[row];
      const int64_t kv_head = own.part - args.heads - (is_key ? 0 : layout.kv_heads);
      to = args.kv + (is_key ? layout.key_offset(block, args.layer, kv_head)
                             : layout.value_offset(block, args.layer, kv_head));
    }
    rotate_head<kWidth>(args, row, own.part, [&]<int kDims>(int64_t dim, const Dims<kDims>& x) {
      if (!own.real) {
        return;
      }
      const auto in_order = [](int64_t at) { return at; };
      if (is_query && args.q_type == ElementType::kBF16) {
        store_dims<kDims, BFloat16>(to, in_order, dim, x);
      } else if (is_query) {
        store_dims<kDims, float>(to, in_order, dim, x);
      } else if (is_key) {
        store_dims<kDims, Element>(
            to, [&](int64_t at) { return layout.key_element(slot, at); }, dim, x);
      } else {
        store_dims<kDims, Element>(
            to, [&](int64_t at) { return layout.value_element(slot, at); }, dim, x);
      }
    });
  }
};

// Whether four dims at a time can be read.
template <class Args>
bool takes_four_dims(const Args& args) {
  const int64_t half_bytes = args.layout.head_dim / 2 * int64_t{sizeof(float)};
  return half_bytes % kVectorBytes == 0 && args.layout.padded_head_dim % 4 == 0 &&
         rows_aligned(args.qkv, args.qkv_stride * int64_t{sizeof(float)}) && is_aligned(args.cos) &&
         is_aligned(args.sin) && is_aligned(args.q_norm) && is_aligned(args.k_norm);
}

// Blocks of a row's heads.
template <class Args>
constexpr unsigned head_blocks(const Args& args) {
  return blocks_for(args.heads + 2 * args.layout.kv_heads, kBlockHeads);
}
template <template <int, class> class Kernel, class Args>
cudaError_t launch_heads(cudaStream_t stream, const Args& args, unsigned more_blocks = 0) {
  const dim3 grid(static_cast<unsigned>(args.rows), head_blocks(args) + more_blocks);
  constexpr unsigned kThreads = kHeadThreads * kBlockHeads;
  const bool narrow_kv = args.layout.type == ElementType::kBF16;
  if (takes_four_dims(args)) {
    return narrow_kv ? launch_blocks(stream, Kernel<4, BFloat16>{args}, grid, kThreads)
                     : launch_blocks(stream, Kernel<4, float>{args}, grid, kThreads);
  }
  return narrow_kv ? launch_blocks(stream, Kernel<1, BFloat16>{args}, grid, kThreads)
                   : launch_blocks(stream, Kernel<1, float>{args}, grid, kThreads);
}

inline FastResult run_fast(cudaStream_t stream, const RopeWriteOp& op) {
  return op.rows <= 0 ? cudaSuccess : launch_heads<FastRopeWrite>(stream, op);
}

// ---------------------------------------------------------------- SiluMul

template <class Out>
struct FastSiluMul {
  static constexpr int kMaxThreads = 128;
  SiluMul plain;

  __device__ void operator()() const {
    const int64_t columns = plain.op.w.n / 2;
    const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * 8;
    if (column >= columns) {
      return;
    }
    const int64_t row = blockIdx.x;
    const float* sums = plain.of.sums + row * plain.op.w.n;
    const Eight gates = load_eight(sums + column);
    const Eight ups = load_eight(sums + columns + column);
    Eight activated;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      activated.at[i] = silu_times(gates.at[i], ups.at[i]);
    }
    store_eight(static_cast<Out*>(plain.op.activated) +
                    (plain.of.row_begin + row) * plain.op.activated_stride + column,
                activated);
  }
};

inline FastResult run_fast(cudaStream_t stream, const SiluMul& plain) {
  const GateUpOp& op = plain.op;
  const int64_t columns = op.w.n / 2;
  if (plain.of.row_count <= 0) {
    return cudaSuccess;
  }
  if (columns % 8 != 0 || !is_aligned(plain.of.sums) ||
      !rows_aligned(op.activated, op.activated_stride * element_bytes(op.x_type))) {
    return std::nullopt;
  }
  const dim3 grid(static_cast<unsigned>(plain.of.row_count), blocks_for(columns, 8 * 128));
  return op.x_type == ElementType::kF32
             ? launch_blocks(stream, FastSiluMul<float>{plain}, grid, 128)
             : launch_blocks(stream, FastSiluMul<BFloat16>{plain}, grid, 128);
}

}  // namespace tandem::device::cuda
