// Y = X * W^T (+ bias) (+ Y), or SiLU(gate) * up of two such products, with W packed once at load,
// and the packing itself. Arguments only; the functions that take them are in kernels.h. All dims
// that a kernel sees are padded: n and k to multiples of 32, the padding holds zeros.
//
// A quantised W is stored as integers q with one scale for each group of 32 depths of a column
// (base/quantization.h). Its products are exact up to the rounding of sums: the products of x and q
// of a group are summed first, then scale * sum is added to the column's result, and minimum * the
// group's sum of x (group_sums, quantize.h) if there is one.
//
// With Activations::kInt8 x is rounded to integers first, by groups (round_group, quantize.h).
// Integer sums are exact in any order, so every family gets the same bits: y = fma(scale * x's
// scale, sum, y) for each group, in the order of depth, followed by y = fma(minimum, x's sum, y) if
// there is a minimum.
//
// A row of Y depends on its row of X and on W alone: never on the number of rows, on the range of
// panels given to a call, or on the thread (decisions.md 7). bf16 x bf16 products are summed in
// fp32.
//
// Products with rounded activations or with minima first round or sum each row of X. A call does so
// in its scratch, for all rows. Where a family can (Kernels::prepare), its caller prepares the rows
// once for all ranges of panels.
#pragma once

#include <cstdint>

#include "base/element_type.h"
#include "base/quantization.h"

namespace tandem::kernels {

inline constexpr int64_t kPanelColumns =
    32;  // W is packed in panels of 32 output columns; work is divided by panels
inline constexpr int64_t kDepthMultiple = 32;

constexpr int64_t round_up(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

constexpr int64_t divide_up(int64_t x, int64_t y) { return (x + y - 1) / y; }

// Elements from one row of an activation to the next that keep rows an odd number of cache lines
// apart: rows a power of two apart share the sets of a cache, and sixteen of them do not fit one.
// Any stride is right; this one is fast.
constexpr int64_t spread_stride(int64_t columns, ElementType type) {
  const int64_t line_elements = 64 / element_bytes(type);
  return (round_up(columns, line_elements) / line_elements | 1) * line_elements;
}

// Bytes of a quantised group's integers.
constexpr int64_t group_value_bytes(Quantization quantization) {
  return quantization == Quantization::kInt8 ? kQuantizedGroup : kQuantizedGroup / 2;
}
// Of its scale, and of its minimum if there is one: fp16.
constexpr int64_t group_scale_bytes(Quantization quantization) {
  return has_minimum(quantization) ? 4 : 2;
}

// A weight in the packed layout of one kernel family. The layout inside is the family's own
// business; its size is not.
struct PackedMatrix {
  const void* data = nullptr;             // 64-byte aligned, bytes()
  ElementType type = ElementType::kBF16;  // of x, and of the elements if they are not quantised
  int64_t n = 0;                          // output columns, padded to 32
  int64_t k = 0;                          // depth, padded to 32
  Quantization quantization = Quantization::kNone;  // others need type kBF16
  Activations activations = Activations::kPlain;    // kInt8 needs quantised elements
  [[nodiscard]] bool quantized() const { return quantization != Quantization::kNone; }
  [[nodiscard]] bool int8_products() const { return activations == Activations::kInt8; }
  [[nodiscard]] int64_t bytes() const {
    return quantized() ? n * (k / kQuantizedGroup) *
                             (group_value_bytes(quantization) + group_scale_bytes(quantization))
                       : n * k * element_bytes(type);
  }
  [[nodiscard]] int64_t panels() const { return n / kPanelColumns; }
};

// How a checkpoint's dimension maps to the padded one: index i goes to (i / group) * padded_group +
// i % group. One group = the whole dimension padded at its end; groups of head_dim = every head
// padded.
struct PaddedDim {
  int64_t logical = 0;
  int64_t group = 0;
  int64_t padded_group = 0;
  [[nodiscard]] int64_t padded() const { return logical / group * padded_group; }
};

// Packs source [n.logical, k.logical] (row-major, dense) into columns n_offset .. n_offset +
// n.padded() of `target`, which a caller may divide over threads by panels of the *source's padded
// n*. n_offset and n.padded() are multiples of 32. Padding elements are written as zeros. Values
// convert to target.type (round to nearest even), or are quantised (quantize.h). With panel_step 2
// the source's panels go to every second panel from n_offset on: two matrices alternate.
//
// A source may be quantised already: then it is QuantizedGroup [n.logical, k.logical / 32]
// (quantize.h), k.logical is a multiple of 32, and a target of the same kind keeps its integers.
struct PackArgs {
  const void* source = nullptr;
  ElementType source_type = ElementType::kBF16;  // unless it is quantised
  Quantization source_quantization = Quantization::kNone;
  PaddedDim n;
  PaddedDim k;
  PackedMatrix target;
  void* target_data = nullptr;  // == target.data, writable
  int64_t n_offset = 0;
  int64_t panel_step = 1;
};

enum class GemmStore : uint8_t {
  kWrite,  // y = x w^T + bias
  kAdd,    // y += x w^T + bias: the residual
  // activated = silu(gate) * up, where the panels of w alternate between gate and up: columns 32i
  // .. 32i+31 of gate are panel 2i, of up panel 2i+1. No bias. Panels are given in pairs.
  kSiluMul,
};

struct GemmArgs {
  const void* x = nullptr;  // [rows, x_stride >= w.k], element type w.type; columns past the
                            // logical k hold zeros
  int64_t x_stride = 0;     // in elements
  int64_t rows = 0;
  PackedMatrix w;
  const float* bias = nullptr;  // [w.n] or null
  float* y = nullptr;           // [rows, y_stride >= w.n]
  int64_t y_stride = 0;         // of y, or of activated, in elements
  GemmStore store = GemmStore::kWrite;
  void* activated = nullptr;  // kSiluMul, instead of y: [rows, y_stride >= w.n / 2], type w.type
  // The rows as Kernels::prepare left them, for the same rows and w. Null: each call prepares them
  // in its scratch, if the product needs that.
  const void* prepared = nullptr;
  // The smallest number of panels that a caller may give to a thread; ranges are multiples of it.
  [[nodiscard]] int64_t panel_unit() const { return store == GemmStore::kSiluMul ? 2 : 1; }
};

}  // namespace tandem::kernels
