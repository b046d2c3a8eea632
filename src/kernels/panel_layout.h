// The packed layout that all vector kernels read, and the kernels that only move its data. Each
// panel of 32 columns is one sequential stream:
//   bf16:  [n/32][k/32][2 halves of 16 columns][16 depth pairs][16 columns][2 depths]
//   fp32:  [n/32][k][32 columns]
// A bf16 half is a tile as the matrix unit takes it; a vector unit splits a pair with one shift and
// one mask. Quantised panels have such steps of 32 depths too, each followed by its 32 scales and,
// if its kind has minima, those:
//   int8:  [n/32][k/32]{[2 halves][16 pairs][16 columns][2 depths], [32 columns] fp16}
//   int4:  [n/32][k/32]{[2 halves][4 x 4 pairs][16 columns][2 depths][4 pairs], [32 columns] fp16}
// If activations are rounded to int8, an int8 is stored as the unsigned byte q + 128, in the order
// in which products of bytes take it:
//          [n/32][k/32]{[8 quads][32 columns][4 depths], [32 columns] fp16}
// A symmetric int4 is stored as q + 8. Four, of one depth of each of four pairs, are a 16-bit word,
// the first in its lowest bits: a vector of words is four vectors of a bf16 step. Plain loops, any
// thread.
#pragma once

#include "kernels/kernels.h"

namespace tandem::kernels::panel_layout {

inline constexpr int64_t kTileElements = 16 * 16 * 2;  // one bf16 half block
inline constexpr int64_t kStepDepths = 32;
static_assert(kStepDepths == kQuantizedGroup);

inline constexpr int64_t kScalesBytes = kPanelColumns * int64_t{sizeof(uint16_t)};  // of a step
// Of a quantised step: its integers, and all of it.
constexpr int64_t step_value_bytes(Quantization quantization) {
  return kPanelColumns * group_value_bytes(quantization);
}
constexpr int64_t step_bytes(Quantization quantization) {
  return step_value_bytes(quantization) + kPanelColumns * group_scale_bytes(quantization);
}

// Element index of W[row n, depth k] inside the packed data.
constexpr int64_t bf16_index(int64_t n, int64_t k, int64_t depth) {
  const int64_t block = (n / 32) * (depth / 32) + k / 32;
  return block * 2 * kTileElements + (n % 32 / 16) * kTileElements + (k % 32 / 2) * 32 +
         n % 16 * 2 + k % 2;
}
// Byte index of int8 W[n, k] if activations are rounded.
constexpr int64_t quad_index(int64_t n, int64_t k, int64_t depth) {
  const int64_t step = (n / 32) * (depth / 32) + k / 32;
  return step * kStepDepths * kPanelColumns + k % 32 / 4 * (4 * kPanelColumns) + n % 32 * 4 + k % 4;
}
constexpr int64_t f32_index(int64_t n, int64_t k, int64_t depth) {
  return ((n / 32) * depth + k) * 32 + n % 32;
}

void pack(const PackArgs& args, int64_t panel_begin, int64_t panel_end);
void unpack_row(const PackedMatrix& matrix, int64_t row, float* out);
void embed(const EmbedArgs& args, int64_t row_begin, int64_t row_end);

}  // namespace tandem::kernels::panel_layout
