// Element types of weights, KV and activations, and bf16 / fp16 conversion of single values.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace tandem {

enum class ElementType : uint8_t { kF32, kBF16, kF16 };  // kF16 only as a checkpoint's type on disk

constexpr int64_t element_bytes(ElementType type) { return type == ElementType::kF32 ? 4 : 2; }
constexpr std::string_view element_name(ElementType type) {
  return type == ElementType::kF32    ? "float32"
         : type == ElementType::kBF16 ? "bfloat16"
                                      : "float16";
}

using BFloat16 = uint16_t;  // the upper half of an fp32

constexpr float bf16_to_f32(BFloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x) << 16);
}

// Round to nearest even; NaN stays NaN.
constexpr BFloat16 f32_to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return static_cast<BFloat16>((bits >> 16) | 0x40U);
  }
  return static_cast<BFloat16>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

constexpr float f16_to_f32(uint16_t x) {
  const uint32_t sign = static_cast<uint32_t>(x & 0x8000U) << 16;
  const uint32_t exponent = (x >> 10) & 0x1fU;
  const uint32_t fraction = x & 0x3ffU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 31) {
    return std::bit_cast<float>(sign | 0x7f800000U | (fraction << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

}  // namespace tandem
