// fp32 to fp16. The other direction, which every reader of checkpoints needs, is in element_type.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace tandem {

// Round to nearest even. The magnitude must be below 65520, which is where fp16 ends.
inline uint16_t f32_to_f16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const float magnitude = std::fabs(x);
  if (magnitude < 0x1p-14F) {  // subnormal: a multiple of 2^-24
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24F)));
  }
  uint32_t rounded = bits & 0x7fffffffU;
  rounded += 0xfffU + ((rounded >> 13) & 1U);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112U << 10)));
}

}  // namespace tandem
