// Matrices as a checkpoint holds them, for the tests of matrix products; a product with a guarded
// scratch. Test code, any thread.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/kernels.h"
#include "machine.h"

namespace tandem::kernels {

// A checkpoint matrix [n.logical, k.logical] of `type`, with its values in padded coordinates.
struct Source {
  PaddedDim n;
  PaddedDim k;
  ElementType type;
  std::vector<std::byte> bytes;
  std::vector<float> padded;  // [n.padded(), k.padded()], rounded to the target type
};

inline uint16_t f16_bits(Random& random) {  // any finite half of moderate size, some subnormal
  const auto exponent = static_cast<uint16_t>(pick(random, 0, 15));
  return static_cast<uint16_t>(pick(random, 0, 1) << 15 | exponent << 10 | pick(random, 0, 1023));
}

inline Source make_source(Random& random, PaddedDim n, PaddedDim k, ElementType type,
                          ElementType target) {
  Source source{n, k, type, {}, {}};
  source.bytes.resize(static_cast<size_t>(n.logical * k.logical * element_bytes(type)));
  source.padded.assign(static_cast<size_t>(n.padded() * k.padded()), 0.0F);
  for (int64_t row = 0; row < n.logical; ++row) {
    for (int64_t depth = 0; depth < k.logical; ++depth) {
      const int64_t i = row * k.logical + depth;
      float value = uniform(random, -1.0F, 1.0F);
      if (type == ElementType::kF16) {
        const uint16_t bits = f16_bits(random);
        std::memcpy(source.bytes.data() + i * 2, &bits, 2);
        value = f16_to_f32(bits);
      } else {
        put(source.bytes.data(), type, i, value);
        value = get(source.bytes.data(), type, i);
      }
      const int64_t at_n = row / n.group * n.padded_group + row % n.group;
      const int64_t at_k = depth / k.group * k.padded_group + depth % k.group;
      source.padded[static_cast<size_t>(at_n * k.padded() + at_k)] =
          target == ElementType::kBF16 ? bf16_to_f32(f32_to_bf16(value)) : value;
    }
  }
  return source;
}

inline PaddedDim whole(int64_t logical) { return {logical, logical, round_up(logical, 32)}; }

inline void run(const Kernels& kernels, const GemmArgs& args, int64_t panel_begin,
                int64_t panel_end) {
  Guarded<std::byte> scratch(kernels.gemm_scratch_bytes(args));
  kernels.gemm(args, panel_begin, panel_end, scratch.data());
  EXPECT_TRUE(scratch.guards_intact());
}

}  // namespace tandem::kernels
