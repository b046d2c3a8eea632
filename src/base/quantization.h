// How weights are stored in fewer bits than they are computed with. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tandem {

// Every kind divides a row of a weight into groups of kQuantizedGroup elements along the depth,
// each with a scale in fp16, and some with a minimum in fp16.
enum class Quantization : uint8_t {
  kNone,
  kInt8,           // scale * q, q of -127 .. 127
  kInt4,           // minimum + scale * q, q of 0 .. 15
  kInt4Symmetric,  // scale * q, q of -8 .. 7
};

inline constexpr int32_t kQuantizedGroup = 32;

inline constexpr std::array kQuantizations = {Quantization::kNone, Quantization::kInt8,
                                              Quantization::kInt4, Quantization::kInt4Symmetric};

// The names that options and profiles use.
constexpr std::string_view quantization_name(Quantization quantization) {
  return quantization == Quantization::kInt8            ? "int8"
         : quantization == Quantization::kInt4          ? "int4"
         : quantization == Quantization::kInt4Symmetric ? "int4-symmetric"
                                                        : "none";
}

constexpr bool has_minimum(Quantization quantization) {
  return quantization == Quantization::kInt4;
}

// How products with quantised weights read the rows of activations. kInt8 rounds each group of
// kQuantizedGroup depths of a row to integers with a scale of their own (kernels/quantize.h).
enum class Activations : uint8_t { kPlain, kInt8 };

// The names that options use.
constexpr std::string_view activations_name(Activations activations) {
  return activations == Activations::kInt8 ? "int8" : "auto";
}

}  // namespace tandem
