// exp(x) in fp32, the constants and the scalar form. Every family computes the same operations in
// the same order (all multiply-adds are fused), so that a seed draws the same token from the same
// logits on every machine.
//
// x = n ln2 + r with |r| <= ln2 / 2; exp(r) by its series to r^7 (error 5e-9); n goes into the
// exponent bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/anywhere.h"

namespace tandem::kernels {

inline constexpr float kExpLowest = -87.0F;  // below: 0, so results are never denormal
inline constexpr float kExpHighest = 88.0F;
inline constexpr float kExpLog2e = 1.44269504F;
inline constexpr float kExpLn2High = 0.693359375F;  // 9 bits: n * ln2_high is exact
inline constexpr float kExpLn2Low = -2.12194440e-4F;
inline constexpr float kExpRoundMagic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to integer
inline constexpr float kExpC2 = 1.0F / 2;
inline constexpr float kExpC3 = 1.0F / 6;
inline constexpr float kExpC4 = 1.0F / 24;
inline constexpr float kExpC5 = 1.0F / 120;
inline constexpr float kExpC6 = 1.0F / 720;
inline constexpr float kExpC7 = 1.0F / 5040;

TANDEM_ANYWHERE inline float exp_scalar(float x) {
  if (std::isnan(x)) {
    return x;
  }
  if (x < kExpLowest) {
    return 0.0F;
  }
  const float clamped = x < kExpHighest ? x : kExpHighest;
  const float n = std::fma(clamped, kExpLog2e, kExpRoundMagic) - kExpRoundMagic;
  float r = std::fma(n, -kExpLn2High, clamped);
  r = std::fma(n, -kExpLn2Low, r);
  float p = kExpC7;
  p = std::fma(p, r, kExpC6);
  p = std::fma(p, r, kExpC5);
  p = std::fma(p, r, kExpC4);
  p = std::fma(p, r, kExpC3);
  p = std::fma(p, r, kExpC2);
  p = std::fma(p, r, 1.0F);
  p = std::fma(p, r, 1.0F);
  const auto exponent = static_cast<uint32_t>(static_cast<int32_t>(n)) << 23;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + exponent);
}

}  // namespace tandem::kernels
