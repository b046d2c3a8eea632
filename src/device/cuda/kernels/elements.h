// What the plain kernels of the CUDA back end share. A kernel here is a struct of arguments with
// count(), the number of its indices, and operator()(i), the work of one index: nothing is shared
// between indices and nothing waits, so the GPU runs them in any order and a test runs them in a
// loop on the host, from the same source. They say what is right, not what is fast.
// kernels_of(op), beside the kernels of an op, is a tuple of the kernels that compute it, in order.
//
// Like all code of this folder: pointers are device addresses; no index writes what another one
// reads or writes; fp32 arithmetic, not contracted, as the host's reference kernels compute.
#pragma once

#include <cstdint>

#include "base/anywhere.h"
#include "base/element_type.h"

namespace tandem::device::cuda {

TANDEM_ANYWHERE inline float load_element(const void* data, ElementType type, int64_t i) {
  if (type == ElementType::kF32) {
    return static_cast<const float*>(data)[i];
  }
  const uint16_t bits = static_cast<const uint16_t*>(data)[i];
  return type == ElementType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

TANDEM_ANYWHERE inline float widened(float x) { return x; }
TANDEM_ANYWHERE inline float widened(BFloat16 x) { return bf16_to_f32(x); }

// Calls work(pointer to the elements), once their type is known: kF32 or kBF16.
template <class Work>
TANDEM_ANYWHERE void with_elements(const void* data, ElementType type, const Work& work) {
  if (type == ElementType::kF32) {
    work(static_cast<const float*>(data));
  } else {
    work(static_cast<const BFloat16*>(data));
  }
}

// kF32 or kBF16.
TANDEM_ANYWHERE inline void store_element(void* data, ElementType type, int64_t i, float value) {
  if (type == ElementType::kF32) {
    static_cast<float*>(data)[i] = value;
  } else {
    static_cast<BFloat16*>(data)[i] = f32_to_bf16(value);
  }
}

}  // namespace tandem::device::cuda
