// How weights are stored in fewer bits than they are computed with. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tandem {

// Every kind divides a row of a weight into groups of kQuantizedGroup elements along the depth,
// each with a scale in fp16; an element is scale * q.
enum class Quantization : uint8_t {
  kNone,
  kInt8,  // q is -127 .. 127
  kInt4,  // q is -8 .. 7
};

inline constexpr int32_t kQuantizedGroup = 32;

// The names that options and profiles use.
constexpr std::string_view quantization_name(Quantization quantization) {
  return quantization == Quantization::kInt8   ? "int8"
         : quantization == Quantization::kInt4 ? "int4"
                                               : "none";
}

inline constexpr std::array kQuantizations = {Quantization::kNone, Quantization::kInt8,
                                              Quantization::kInt4};

}  // namespace tandem
