// Reading a checkpoint's matrix in padded coordinates, for packing. Borrows the arguments.
#pragma once

#include <cstring>

#include "kernels/gemm.h"
#include "kernels/quantize.h"

namespace tandem::kernels {

// The logical index of padded index `i`, or -1 where it is padding.
constexpr int64_t logical_index(const PaddedDim& dim, int64_t i) {
  const int64_t inside = i % dim.padded_group;
  return inside < dim.group ? i / dim.padded_group * dim.group + inside : -1;
}

inline float source_value(const PackArgs& args, int64_t index) {
  if (args.source_quantization != Quantization::kNone) {
    const auto* groups = static_cast<const QuantizedGroup*>(args.source);
    return groups[index / kQuantizedGroup].element(index % kQuantizedGroup);
  }
  switch (args.source_type) {
    case ElementType::kF32: {
      float value = 0.0F;  // checkpoints promise no alignment
      std::memcpy(&value, static_cast<const char*>(args.source) + index * 4, 4);
      return value;
    }
    case ElementType::kBF16:
    case ElementType::kF16: {
      uint16_t bits = 0;
      std::memcpy(&bits, static_cast<const char*>(args.source) + index * 2, 2);
      return args.source_type == ElementType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
    }
  }
  return 0.0F;
}

// W[padded row n, padded depth k] of the source, zero where either is padding.
inline float padded_source_value(const PackArgs& args, int64_t n, int64_t k) {
  const int64_t row = logical_index(args.n, n);
  const int64_t depth = logical_index(args.k, k);
  return row < 0 || depth < 0 ? 0.0F : source_value(args, row * args.k.logical + depth);
}

// The depths k .. k + 31 of padded row n as a group of the target's kind, if the source is
// quantised and padding does not cut its groups; else nullptr. `room` may be written.
const QuantizedGroup* source_group(const PackArgs& args, int64_t n, int64_t k,
                                   QuantizedGroup& room);

}  // namespace tandem::kernels
