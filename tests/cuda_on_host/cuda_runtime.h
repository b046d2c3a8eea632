// The part of CUDA's language that the fast kernels of src/device/cuda use, for a host's compiler.
// It takes the place of the toolkit's header of the same name, which a CUDA compiler reads by
// itself. Fibers run the threads (simt.h).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <typeinfo>

#include "cuda_runtime_api.h"
#include "simt.h"

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): CUDA's own names

#define __device__

struct alignas(8) uint2 {
  uint32_t x;
  uint32_t y;
};
struct alignas(16) uint4 {
  uint32_t x;
  uint32_t y;
  uint32_t z;
  uint32_t w;
};
struct alignas(16) float4 {
  float x;
  float y;
  float z;
  float w;
};
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }

inline void __syncthreads(const cuda_on_host::SourceLine& where = {__builtin_FILE(),
                                                                   __builtin_LINE()}) {
  cuda_on_host::wait_for_block(where);
}

namespace cuda_on_host {

// What lane `from` gives; `own` if there is no such lane.
template <class Value>
Value shuffle(unsigned mask, Value own, unsigned from, const SourceLine& where) {
  static_assert(std::is_trivially_copyable_v<Value> && sizeof(Value) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &own, sizeof(own));
  const auto& given = exchange(mask, bits, where);
  if (from < kLanes) {
    std::memcpy(&own, &given.at(from), sizeof(own));
  }
  return own;
}

}  // namespace cuda_on_host

template <class Value>
Value __shfl_xor_sync(unsigned mask, Value own, int distance,
                      const cuda_on_host::SourceLine& where = {__builtin_FILE(),
                                                               __builtin_LINE()}) {
  const unsigned lane = threadIdx.x % cuda_on_host::kLanes;
  return cuda_on_host::shuffle(mask, own, lane ^ static_cast<unsigned>(distance), where);
}
template <class Value>
Value __shfl_up_sync(unsigned mask, Value own, unsigned distance,
                     const cuda_on_host::SourceLine& where = {__builtin_FILE(), __builtin_LINE()}) {
  const unsigned lane = threadIdx.x % cuda_on_host::kLanes;
  return cuda_on_host::shuffle(mask, own, lane - distance, where);  // wraps below lane 0
}

// Nothing comes between: one thread of the machine runs a block, and blocks of a grid take turns.
template <class Value>
Value atomicAdd(Value* at, std::type_identity_t<Value> x) {
  const Value before = *at;
  *at = static_cast<Value>(before + x);
  return before;
}
template <class Value>
Value atomicOr(Value* at, std::type_identity_t<Value> x) {
  const Value before = *at;
  *at = before | x;
  return before;
}
template <class Value>
Value atomicMax(Value* at, std::type_identity_t<Value> x) {
  const Value before = *at;
  *at = before < x ? x : before;
  return before;
}
template <class Value>
Value atomicMin(Value* at, std::type_identity_t<Value> x) {
  const Value before = *at;
  *at = x < before ? x : before;
  return before;
}

// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace cuda_on_host {

std::string readable(const char* type_name);

// In place of a launch of kernel(), or of kernel(Kernel::Shared&), by all threads. A broken rule
// ends the program.
void enqueue_blocks(cudaStream_t stream, Blocks blocks, std::function<void(void*)> body);

template <class Kernel>
void enqueue_blocks(cudaStream_t stream, const Kernel& kernel, dim3 grid, unsigned threads) {
  Blocks blocks{.kernel = readable(typeid(Kernel).name()), .grid = grid, .threads = threads};
  if constexpr (requires { typename Kernel::Shared; }) {
    blocks.shared_bytes = sizeof(typename Kernel::Shared);
    enqueue_blocks(stream, std::move(blocks), [kernel](void* shared) {
      kernel(*static_cast<typename Kernel::Shared*>(shared));
    });
  } else {
    enqueue_blocks(stream, std::move(blocks), [kernel](void* /*shared*/) { kernel(); });
  }
}

}  // namespace cuda_on_host
