// Steps of quantised panels for kernels whose products take pairs of bf16: their integers as a bf16
// panel, the sums of x for weights with minima, and the sums of a step on their way to the results.
// Needs AVX-512 BF16.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/gemm.h"
#include "kernels/panel_layout.h"
#include "kernels/quantize.h"

// gcc 12 takes the operands that its own intrinsics leave undefined for uninitialized variables.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16")
namespace tandem::kernels::avx512bf16 {

inline constexpr int64_t kHalfBytes = panel_layout::kTileElements * 2;  // 16 columns x 32 depths
inline constexpr int64_t kStepBytes = 2 * kHalfBytes;                   // of a panel: 32 depths
inline constexpr int64_t kPieceSteps = 8;                               // 16 KB of a panel

// A piece of a quantised panel as integers in bf16.
struct Unpacked {
  alignas(64) char w[kPieceSteps * kStepBytes];
};

HWY_INLINE __m512bh as_pairs(__m512i bits) { return reinterpret_cast<__m512bh>(bits); }

// bf16 of -8 .. 7 or of 0 .. 15, twice: an index's fifth bit does not matter.
template <Quantization kQuantization>
HWY_INLINE __m512i int4_table() {
  if constexpr (kQuantization == Quantization::kInt4) {
    return _mm512_broadcast_i64x4(_mm256_setr_epi16(0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0,
                                                    0x40c0, 0x40e0, 0x4100, 0x4110, 0x4120, 0x4130,
                                                    0x4140, 0x4150, 0x4160, 0x4170));
  }
  const __m256i once = _mm256_setr_epi16(static_cast<int16_t>(0xc100), static_cast<int16_t>(0xc0e0),
                                         static_cast<int16_t>(0xc0c0), static_cast<int16_t>(0xc0a0),
                                         static_cast<int16_t>(0xc080), static_cast<int16_t>(0xc040),
                                         static_cast<int16_t>(0xc000), static_cast<int16_t>(0xbf80),
                                         0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0);
  return _mm512_broadcast_i64x4(once);
}

// Four pairs of depths of 16 columns.
struct FourPairs {
  __m512bh pairs[4];
};

HWY_INLINE FourPairs load_int4(const char* from, __m512i table) {
  const __m512i words = _mm512_load_si512(from);
  return {as_pairs(_mm512_permutexvar_epi16(words, table)),
          as_pairs(_mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4), table)),
          as_pairs(_mm512_permutexvar_epi16(_mm512_srli_epi16(words, 8), table)),
          as_pairs(_mm512_permutexvar_epi16(_mm512_srli_epi16(words, 12), table))};
}

HWY_INLINE __m512 load_int8(const char* from) {
  const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(from));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

HWY_INLINE FourPairs load_int8_pairs(const char* from) {
  FourPairs four;
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    four.pairs[i] = reinterpret_cast<__m512bh>(
        _mm512_cvtne2ps_pbh(load_int8(from + i * 32 + 16), load_int8(from + i * 32)));
  }
  return four;
}

template <Quantization kQuantization>
HWY_INLINE FourPairs load_four(const char* half, int64_t fours, __m512i table) {
  return kQuantization == Quantization::kInt8 ? load_int8_pairs(half + fours * 128)
                                              : load_int4(half + fours * 64, table);
}

HWY_INLINE __m512 load_halves(const char* at) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(at)));
}

template <Quantization kQuantization>
inline void unpack(const char* from, int64_t steps, Unpacked& to) {
  const __m512i table = int4_table<kQuantization>();
  char* w = to.w;
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t fours = 0; fours < 8; ++fours, w += 256) {
      const FourPairs four = load_four<kQuantization>(from, fours, table);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        _mm512_store_si512(w + i * 64, reinterpret_cast<__m512i>(four.pairs[i]));
      }
    }
    from += panel_layout::step_bytes(kQuantization);
  }
}

inline void unpack(Quantization quantization, const char* from, int64_t steps, Unpacked& to) {
  switch (quantization) {
    case Quantization::kInt8:
      return unpack<Quantization::kInt8>(from, steps, to);
    case Quantization::kInt4:
      return unpack<Quantization::kInt4>(from, steps, to);
    default:
      return unpack<Quantization::kInt4Symmetric>(from, steps, to);
  }
}

HWY_INLINE __m512 widen(__m256i bf16) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16));
}

// group_sums (quantize.h), with its additions in its order.
HWY_INLINE float group_sum(const BFloat16* x) {
  const __m512i all = _mm512_loadu_si512(x);
  const __m512 sixteen =
      _mm512_add_ps(widen(_mm512_castsi512_si256(all)), widen(_mm512_extracti64x4_epi64(all, 1)));
  const __m256 eight =
      _mm256_add_ps(_mm512_castps512_ps256(sixteen), _mm512_extractf32x8_ps(sixteen, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// The sums of x over each step's depths, for rows [row, row + rows), as [row][step].
inline void sum_x(const GemmArgs& args, int64_t row, int64_t rows, float* sums) {
  const int64_t steps = args.w.k / kQuantizedGroup;
  for (int64_t r = row; r < row + rows; ++r) {
    const auto* x = static_cast<const BFloat16*>(args.x) + r * args.x_stride;
    for (int64_t step = 0; step < steps; ++step) {
      *sums++ = group_sum(x + step * kQuantizedGroup);
    }
  }
}

// Scales and minima of a step for half of its columns.
struct Scales {
  __m512 scale;
  __m512 minimum;
};

// c (+)= scale * sums
HWY_INLINE void add_scaled(const Scales& scales, bool first, __m512 sums, float* c) {
  const __m512 before = first ? _mm512_setzero_ps() : _mm512_load_ps(c);
  _mm512_store_ps(c, _mm512_fmadd_ps(scales.scale, sums, before));
}
// c (+)= scale * sums + minimum * x_sum
HWY_INLINE void add_scaled(const Scales& scales, bool first, __m512 sums, float x_sum, float* c) {
  const __m512 before = first ? _mm512_setzero_ps() : _mm512_load_ps(c);
  const __m512 scaled = _mm512_fmadd_ps(scales.scale, sums, before);
  _mm512_store_ps(c, _mm512_fmadd_ps(scales.minimum, _mm512_set1_ps(x_sum), scaled));
}

HWY_INLINE Scales load_scales(const char* at, bool minima) {
  return {load_halves(at),
          minima ? load_halves(at + panel_layout::kScalesBytes) : _mm512_setzero_ps()};
}

}  // namespace tandem::kernels::avx512bf16
HWY_POP_ATTRIBUTES
