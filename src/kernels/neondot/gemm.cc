// Y = X W^T of quantised weights with activations rounded to int8: sdot adds four products of
// signed bytes to each of four sums. Registers hold the integer sums of a group of up to 6 rows x
// 16 columns; bytes/gemm.h has all around them.
#include <arm_neon.h>

#include <cstdint>
#include <cstring>
#include <limits>

#include "hwy/highway.h"
#include "kernels/bytes/gemm.h"
#include "kernels/neondot/neondot.h"
#include "kernels/panel_layout.h"
#include "kernels/quantize.h"

HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+dotprod")
namespace tandem::kernels::neondot {

namespace {

using bytes::BlockPiece;
using bytes::kLine;
using bytes::RoundedRows;

constexpr int64_t kGroup = kQuantizedGroup;
constexpr int64_t kQuads = kGroup / 4;
constexpr int64_t kRowSums = kPanelColumns;
constexpr int kVectors = 4;  // hold the sums of 16 columns

// ---------------------------------------------------------------- rows

HWY_INLINE int32x4_t round_four(uint16x4_t x, float inverse) {
  return vcvtnq_s32_f32(vmulq_n_f32(vreinterpretq_f32_u32(vshll_n_u16(x, 16)), inverse));
}

HWY_INLINE int8x8_t round_eight(uint16x8_t x, float inverse) {
  const int32x4_t low = round_four(vget_low_u16(x), inverse);
  const int32x4_t high = round_four(vget_high_u16(x), inverse);
  return vmovn_s16(vcombine_s16(vmovn_s32(low), vmovn_s32(high)));
}

// As round_group. For int4 weights the values lie in the order in which those have their depths: of
// each eight 0, 4, 1, 5 before 2, 6, 3, 7.
HWY_INLINE void round_one(const BFloat16* x, Quantization quantization, const RoundedRows& to) {
  uint16x8_t numbers[4];
  uint16x8_t largest_of = vdupq_n_u16(0);
  for (int i = 0; i < 4; ++i) {
    numbers[i] = vld1q_u16(x + i * 8);
    largest_of = vmaxq_u16(largest_of, vandq_u16(numbers[i], vdupq_n_u16(0x7fff)));
  }
  const uint16_t bits = vmaxvq_u16(largest_of);
  const float largest = bf16_to_f32(bits);
  const bool finite = bits < 0x7f80;
  int8x8_t values[4] = {vdup_n_s8(0), vdup_n_s8(0), vdup_n_s8(0), vdup_n_s8(0)};
  *to.scales = finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
  if (finite && largest >= kLeastRounded) {
    *to.scales = largest / 127.0F;
    for (int i = 0; i < 4; ++i) {
      values[i] = round_eight(numbers[i], 127.0F / largest);
    }
  }
  const int8x8_t order = {0, 4, 1, 5, 2, 6, 3, 7};
  int32_t sum = 0;
  for (int i = 0; i < 4; ++i) {
    sum += vaddlv_s8(values[i]);
    const bool nibbles = quantization != Quantization::kInt8;
    vst1_s8(to.values + i * 8, nibbles ? vtbl1_s8(values[i], order) : values[i]);
  }
  *to.sums = *to.scales * static_cast<float>(sum);
  *to.starts = quantization == Quantization::kInt4Symmetric ? -8 * sum : 0;
}

// ---------------------------------------------------------------- products

template <int kRows>
using Sums = int32x4_t[kRows][kVectors];

// A quad of depths of 16 columns.
template <int kRows>
HWY_INLINE void multiply_quad(const int8_t* x, const int8x16_t (&w)[kVectors], Sums<kRows>& sums) {
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    int32_t four = 0;
    std::memcpy(&four, x + r * kGroup, sizeof four);
    const int8x16_t quad = vreinterpretq_s8_s32(vdupq_n_s32(four));
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = vdotq_s32(sums[r][v], w[v], quad);
    }
  }
}

template <Quantization kKind, int kRows>
HWY_INLINE void multiply_half(const int8_t* x, const char* step, int64_t half, Sums<kRows>& sums) {
  const auto* w = reinterpret_cast<const uint8_t*>(step);
  if constexpr (kKind == Quantization::kInt8) {
    w += half * kLine;
    for (int64_t quad = 0; quad < kQuads; ++quad, w += 2 * kLine, x += 4) {
      int8x16_t bytes[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {  // q + 128 becomes q
        bytes[v] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(w + v * 16), vdupq_n_u8(128)));
      }
      multiply_quad<kRows>(x, bytes, sums);
    }
  } else {
    w += half * (panel_layout::step_value_bytes(kKind) / 2);
    for (int64_t two = 0; two < kQuads / 2; ++two, w += kLine, x += 8) {
      int8x16_t low[kVectors];
      int8x16_t high[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const uint8x16_t line = vld1q_u8(w + v * 16);
        low[v] = vreinterpretq_s8_u8(vandq_u8(line, vdupq_n_u8(15)));
        high[v] = vreinterpretq_s8_u8(vshrq_n_u8(line, 4));
      }
      multiply_quad<kRows>(x, low, sums);
      multiply_quad<kRows>(x + 4, high, sums);
    }
  }
}

// Four of a step's scales or minima.
HWY_INLINE float32x4_t load_four(const char* from) {
  const uint16x4_t halves = vld1_u16(reinterpret_cast<const uint16_t*>(from));
  return vcvt_f32_f16(vreinterpret_f16_u16(halves));
}

// c += scales * the rows' scales * sums, + minima * the rows' sums. `at`: the index of the first
// row's group.
template <Quantization kKind, int kRows>
HWY_INLINE void add_group(const RoundedRows& x, int64_t at, const char* step, int64_t half,
                          const Sums<kRows>& sums, float* c) {
  const char* numbers = step + panel_layout::step_value_bytes(kKind) + half * kLine / 2;
  float* to = c + half * 16;
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v, numbers += 8, to += 4) {
    const float32x4_t scales = load_four(numbers);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const float32x4_t both = vmulq_n_f32(scales, x.scales[at + r]);
      float32x4_t result = vfmaq_f32(vld1q_f32(to + r * kRowSums), both, vcvtq_f32_s32(sums[r][v]));
      if constexpr (has_minimum(kKind)) {
        const float32x4_t minima = load_four(numbers + panel_layout::kScalesBytes);
        result = vfmaq_n_f32(result, minima, x.sums[at + r]);
      }
      vst1q_f32(to + r * kRowSums, result);
    }
  }
}

template <Quantization kKind, int kRows>
HWY_NOINLINE void multiply_bytes(const BlockPiece& piece, float* c) {
  if (piece.first) {
    std::memset(c, 0, kRows * kRowSums * sizeof(float));
  }
  const char* w = piece.w;
  for (int64_t step = 0; step < piece.steps; ++step, w += panel_layout::step_bytes(kKind)) {
    const int64_t at = step * kRows;
    bytes::fetch_part<kKind>(piece, step, w);
    for (int64_t half = 0; half < 2; ++half) {
      Sums<kRows> sums;
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sums[r][v] = vdupq_n_s32(piece.x.starts[at + r]);
        }
      }
      multiply_half<kKind, kRows>(piece.x.values + at * kGroup, w, half, sums);
      add_group<kKind, kRows>(piece.x, at, w, half, sums, c);
    }
  }
}

struct Family {
  static constexpr Isa kPortable = Isa::kNeon;
  static constexpr int64_t kSetBytes = 320 * int64_t{1024};
  static constexpr int64_t group_bytes(Quantization /*quantization*/) { return kGroup; }
  static void round_row(const BFloat16* x, int64_t groups, Quantization quantization, int64_t count,
                        const RoundedRows& to) {
    for (int64_t group = 0; group < groups; ++group, x += kGroup) {
      round_one(x, quantization, to.from(group * count));
    }
  }
  template <Quantization kKind, int kRows>
  static void multiply(const BlockPiece& piece, float* c) {
    multiply_bytes<kKind, kRows>(piece, c);
  }
};

}  // namespace

void fill_gemm(Kernels& table) { bytes::EitherGemm<Family>::fill(table); }

}  // namespace tandem::kernels::neondot
HWY_POP_ATTRIBUTES
