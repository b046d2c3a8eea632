// Rows of activations rounded to int8 (round_group, quantize.h) by AVX2 intrinsics, in the order in
// which the products read them: for int8 weights words, of each quad of depths 0 and 2 before 1 and
// 3; for int4 weights bytes, of each eight depths 0, 4, 1, 5 before 2, 6, 3, 7.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/bytes/gemm.h"
#include "kernels/quantize.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c")
namespace tandem::kernels::avx2 {

// The largest magnitude of 32 numbers, as bits.
HWY_INLINE int32_t largest_bits(__m256i low, __m256i high) {
  const __m256i magnitude = _mm256_set1_epi16(0x7fff);
  const __m256i sixteen =
      _mm256_max_epu16(_mm256_and_si256(low, magnitude), _mm256_and_si256(high, magnitude));
  const __m128i eight =
      _mm_max_epu16(_mm256_castsi256_si128(sixteen), _mm256_extracti128_si256(sixteen, 1));
  // The instruction for the smallest of eight.
  const __m128i all = _mm_set1_epi16(-1);
  return 0xffff - (_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_xor_si128(eight, all))) & 0xffff);
}

HWY_INLINE __m256i round_eight(__m128i x, __m256 inverse) {
  const __m256 value = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
  return _mm256_cvtps_epi32(_mm256_mul_ps(value, inverse));
}

// Sixteen rounded numbers as words, in the order of depths.
HWY_INLINE __m256i round_sixteen(__m256i x, __m256 inverse) {
  const __m256i words = _mm256_packs_epi32(round_eight(_mm256_castsi256_si128(x), inverse),
                                           round_eight(_mm256_extracti128_si256(x, 1), inverse));
  return _mm256_permute4x64_epi64(words, 0xd8);
}

// The sums of the words at even places and at odd places, as the lower and the upper half.
HWY_INLINE int32_t sums_by_parity(__m256i words) {
  const __m128i eight =
      _mm_add_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  const __m128i four = _mm_add_epi16(eight, _mm_unpackhi_epi64(eight, eight));
  return _mm_cvtsi128_si32(_mm_add_epi16(four, _mm_shuffle_epi32(four, 1)));
}

HWY_INLINE void store_words(__m256i low, __m256i high, int8_t* to) {
  const __m256i order = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  auto* target = reinterpret_cast<__m256i*>(to);
  _mm256_storeu_si256(target, _mm256_shuffle_epi8(low, order));
  _mm256_storeu_si256(target + 1, _mm256_shuffle_epi8(high, order));
}

HWY_INLINE void store_bytes(__m256i low, __m256i high, int8_t* to) {
  const __m256i order = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15));
  const __m256i all = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_shuffle_epi8(all, order));
}

// As round_group; the values in the order above. The sums begin, for int4 weights, with two words:
// minus the offset times the sum of x at even depths, and at odd depths.
template <bool kWords>
HWY_INLINE void round_one(const BFloat16* x, int32_t offset, const bytes::RoundedRows& to) {
  const auto* from = reinterpret_cast<const __m256i*>(x);
  const __m256i first = _mm256_loadu_si256(from);
  const __m256i second = _mm256_loadu_si256(from + 1);
  const int32_t bits = largest_bits(first, second);
  const float largest = bf16_to_f32(static_cast<BFloat16>(bits));
  const bool finite = bits < 0x7f80;
  __m256i low = _mm256_setzero_si256();
  __m256i high = low;
  *to.scales = finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
  if (finite && largest >= kLeastRounded) {
    *to.scales = largest / 127.0F;
    const __m256 inverse = _mm256_set1_ps(127.0F / largest);
    low = round_sixteen(first, inverse);
    high = round_sixteen(second, inverse);
  }
  const auto parities = static_cast<uint32_t>(sums_by_parity(_mm256_add_epi16(low, high)));
  const auto even = static_cast<int16_t>(parities & 0xffff);
  const auto odd = static_cast<int16_t>(parities >> 16);
  *to.sums = *to.scales * static_cast<float>(even + odd);
  if constexpr (kWords) {
    *to.starts = -offset * (even + odd);
    store_words(low, high, to.values);
  } else {
    *to.starts = static_cast<int32_t>((static_cast<uint32_t>(-offset * even) & 0xffffU) |
                                      (static_cast<uint32_t>(-offset * odd) << 16));
    store_bytes(low, high, to.values);
  }
}

template <bool kWords>
inline void round_row(const BFloat16* x, int64_t groups, int32_t offset, int64_t count,
                      const bytes::RoundedRows& to) {
  for (int64_t group = 0; group < groups; ++group, x += kQuantizedGroup) {
    round_one<kWords>(x, offset, to.from(group * count));
  }
}

}  // namespace tandem::kernels::avx2
HWY_POP_ATTRIBUTES
