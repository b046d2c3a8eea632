// Y = X W^T of quantised weights with activations rounded to int8, without vpdpbusd. Registers hold
// the integer sums of a group of up to 6 rows x 16 columns; bytes/gemm.h has all around them.
//
// int8 weights: the product of an unsigned and a signed byte needs 16 bits, so the bytes at even
// and at odd depths become words, and vpmaddwd adds two products to 32 bits.
//
// int4 weights: 32 products of 0 .. 15 and -127 .. 127 fit into two words, so vpmaddubsw multiplies
// bytes, a group's sums stay in words, and become 32 bits at its end.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/avx2/avx2.h"
#include "kernels/avx2/rounded_rows.h"
#include "kernels/bytes/gemm.h"
#include "kernels/panel_layout.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c")
namespace tandem::kernels::avx2 {

namespace {

using bytes::BlockPiece;
using bytes::kLine;
using bytes::RoundedRows;

constexpr int64_t kGroup = kQuantizedGroup;
constexpr int64_t kQuads = kGroup / 4;
constexpr int64_t kRowSums = kPanelColumns;
constexpr int64_t kWordGroupBytes = 2 * kGroup;

constexpr int64_t group_bytes_of(Quantization quantization) {
  return quantization == Quantization::kInt8 ? kWordGroupBytes : kGroup;
}

HWY_INLINE __m256i load(const char* from) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
}

HWY_INLINE __m256i four_bytes(const int8_t* from) {
  int32_t four = 0;
  std::memcpy(&four, from, sizeof four);
  return _mm256_set1_epi32(four);
}

// ---------------------------------------------------------------- products

// Sums of a block of rows with 16 columns: 32 bits for int8 weights, pairs of words for int4.
template <int kRows>
using Sums = __m256i[kRows][2];

// The compiler would add up other products first, which are more than registers hold.
HWY_INLINE void keep_order(__m256i& sum) { asm("" : "+x"(sum)); }

template <int kRows>
HWY_INLINE void add_words(const int8_t* x, __m256i left, __m256i right, Sums<kRows>& sums) {
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    const __m256i pair = four_bytes(x + r * kWordGroupBytes);
    sums[r][0] = _mm256_add_epi32(sums[r][0], _mm256_madd_epi16(left, pair));
    sums[r][1] = _mm256_add_epi32(sums[r][1], _mm256_madd_epi16(right, pair));
    keep_order(sums[r][0]);
    keep_order(sums[r][1]);
  }
}

template <int kRows>
HWY_INLINE void add_bytes(const int8_t* x, __m256i left, __m256i right, Sums<kRows>& sums) {
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    const __m256i four = four_bytes(x + r * kGroup);
    sums[r][0] = _mm256_add_epi16(sums[r][0], _mm256_maddubs_epi16(left, four));
    sums[r][1] = _mm256_add_epi16(sums[r][1], _mm256_maddubs_epi16(right, four));
    keep_order(sums[r][0]);
    keep_order(sums[r][1]);
  }
}

template <Quantization kKind, int kRows>
HWY_INLINE void multiply_half(const int8_t* x, const char* step, int64_t half, Sums<kRows>& sums) {
  if constexpr (kKind == Quantization::kInt8) {
    const __m256i even = _mm256_set1_epi16(0xff);
    const char* w = step + half * kLine;
#pragma GCC unroll 8
    for (int64_t quad = 0; quad < kQuads; ++quad, w += 2 * kLine, x += 8) {
      add_words<kRows>(x, _mm256_and_si256(load(w), even), _mm256_and_si256(load(w + 32), even),
                       sums);
      add_words<kRows>(x + 4, _mm256_srli_epi16(load(w), 8), _mm256_srli_epi16(load(w + 32), 8),
                       sums);
    }
  } else {
    const __m256i four_bits = _mm256_set1_epi8(15);
    const char* w = step + half * (panel_layout::step_value_bytes(kKind) / 2);
#pragma GCC unroll 4
    for (int64_t two = 0; two < kQuads / 2; ++two, w += kLine, x += 8) {
      add_bytes<kRows>(x, _mm256_and_si256(load(w), four_bits),
                       _mm256_and_si256(load(w + 32), four_bits), sums);
      add_bytes<kRows>(x + 4, _mm256_and_si256(_mm256_srli_epi16(load(w), 4), four_bits),
                       _mm256_and_si256(_mm256_srli_epi16(load(w + 32), 4), four_bits), sums);
    }
  }
}

// Eight of a step's scales or minima.
HWY_INLINE __m256 load_eight(const char* from) {
  return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(from)));
}

template <Quantization kKind>
HWY_INLINE __m256 as_floats(__m256i sums) {
  if constexpr (kKind == Quantization::kInt8) {
    return _mm256_cvtepi32_ps(sums);
  } else {
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
  }
}

// c += scales * the rows' scales * sums, + minima * the rows' sums. `at`: the index of the first
// row's group.
template <Quantization kKind, int kRows>
HWY_INLINE void add_group(const RoundedRows& x, int64_t at, const char* step, int64_t half,
                          const Sums<kRows>& sums, float* c) {
  const char* numbers = step + panel_layout::step_value_bytes(kKind) + half * kLine / 2;
#pragma GCC unroll 2
  for (int v = 0; v < 2; ++v, numbers += 16) {
    const __m256 scales = load_eight(numbers);
    float* to = c + half * 16 + v * 8;
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m256 both = _mm256_mul_ps(scales, _mm256_set1_ps(x.scales[at + r]));
      __m256 result =
          _mm256_fmadd_ps(both, as_floats<kKind>(sums[r][v]), _mm256_load_ps(to + r * kRowSums));
      if constexpr (has_minimum(kKind)) {
        const __m256 minima = load_eight(numbers + panel_layout::kScalesBytes);
        result = _mm256_fmadd_ps(minima, _mm256_set1_ps(x.sums[at + r]), result);
      }
      _mm256_store_ps(to + r * kRowSums, result);
    }
  }
}

// A step of a half of a panel's columns.
template <Quantization kKind, int kRows>
HWY_INLINE void multiply_step(const RoundedRows& x, int64_t at, const char* step, int64_t half,
                              float* c) {
  Sums<kRows> sums;
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    sums[r][0] = sums[r][1] = _mm256_set1_epi32(x.starts[at + r]);
  }
  multiply_half<kKind, kRows>(x.values + at * group_bytes_of(kKind), step, half, sums);
  add_group<kKind, kRows>(x, at, step, half, sums, c);
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
    multiply_step<kKind, kRows>(piece.x, at, w, 0, c);
    multiply_step<kKind, kRows>(piece.x, at, w, 1, c);
  }
}

struct Family {
  static constexpr Isa kPortable = Isa::kAvx2;
  static constexpr int64_t kSetBytes = 320 * int64_t{1024};
  static constexpr int64_t group_bytes(Quantization quantization) {
    return group_bytes_of(quantization);
  }
  static void round_row(const BFloat16* x, int64_t groups, Quantization quantization, int64_t count,
                        const RoundedRows& to) {
    const int32_t offset = bytes::byte_offset(quantization);
    if (quantization == Quantization::kInt8) {
      avx2::round_row<true>(x, groups, offset, count, to);
    } else {
      avx2::round_row<false>(x, groups, offset, count, to);
    }
  }
  template <Quantization kKind, int kRows>
  static void multiply(const BlockPiece& piece, float* c) {
    multiply_bytes<kKind, kRows>(piece, c);
  }
};

}  // namespace

void fill_gemm(Kernels& table) { bytes::EitherGemm<Family>::fill(table); }

}  // namespace tandem::kernels::avx2
HWY_POP_ATTRIBUTES
