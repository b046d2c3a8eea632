// Tables of bf16 numbers by the four bits of a quantised weight. Plain data, for every target.
#pragma once

#include <cstdint>

#include "base/element_type.h"

namespace tandem::kernels::portable {

// The lower and upper bytes of bf16 numbers by the four bits that stand for them.
struct Int4Bytes {
  alignas(16) uint8_t low[16];
  alignas(16) uint8_t high[16];
};
template <bool kSymmetric>
constexpr Int4Bytes int4_bytes() {
  Int4Bytes bytes{};
  for (int i = 0; i < 16; ++i) {
    const BFloat16 bits = f32_to_bf16(static_cast<float>(i - (kSymmetric ? 8 : 0)));
    bytes.low[i] = static_cast<uint8_t>(bits & 0xff);
    bytes.high[i] = static_cast<uint8_t>(bits >> 8);
  }
  return bytes;
}

}  // namespace tandem::kernels::portable
