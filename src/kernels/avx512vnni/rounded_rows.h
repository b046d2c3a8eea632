// Rows of activations rounded to int8 (round_group, quantize.h) by AVX-512 intrinsics, in the order
// in which the products of bytes read them.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/bytes/gemm.h"
#include "kernels/quantize.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512bw,avx512dq")
namespace tandem::kernels::avx512vnni {

// The largest magnitude of 32 numbers, as bits.
HWY_INLINE int32_t largest_bits(__m512i x) {
  const __m512i magnitudes = _mm512_and_si512(x, _mm512_set1_epi16(0x7fff));
  const __m256i sixteen = _mm256_max_epu16(_mm512_castsi512_si256(magnitudes),
                                           _mm512_extracti64x4_epi64(magnitudes, 1));
  const __m128i eight =
      _mm_max_epu16(_mm256_castsi256_si128(sixteen), _mm256_extracti128_si256(sixteen, 1));
  // The instruction for the smallest of eight.
  const __m128i all = _mm_set1_epi16(-1);
  return 0xffff - (_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_xor_si128(eight, all))) & 0xffff);
}

HWY_INLINE __m512i round_sixteen(__m256i x, __m512 inverse) {
  const __m512 value = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
  return _mm512_cvt_roundps_epi32(_mm512_mul_ps(value, inverse),
                                  _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// As round_group; the values in the order in which loaded weights have their depths.
struct ByteGroup {
  float scale;
  int32_t sum;
};
HWY_INLINE ByteGroup round_to_bytes(const BFloat16* x, bool nibbles, int8_t* to) {
  const __m512i numbers = _mm512_loadu_si512(x);
  const int32_t bits = largest_bits(numbers);
  const float largest = bf16_to_f32(static_cast<BFloat16>(bits));
  const bool finite = bits < 0x7f80;
  ByteGroup group{};
  auto* target = reinterpret_cast<__m128i*>(to);
  if (!finite || largest < kLeastRounded) {
    _mm_storeu_si128(target, _mm_setzero_si128());
    _mm_storeu_si128(target + 1, _mm_setzero_si128());
    group.scale = finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
    return group;
  }
  group.scale = largest / 127.0F;
  const __m512 inverse = _mm512_set1_ps(127.0F / largest);
  const __m512i low = round_sixteen(_mm512_castsi512_si256(numbers), inverse);
  const __m512i high = round_sixteen(_mm512_extracti64x4_epi64(numbers, 1), inverse);
  group.sum = _mm512_reduce_add_epi32(_mm512_add_epi32(low, high));
  __m128i low_bytes = _mm512_cvtepi32_epi8(low);
  __m128i high_bytes = _mm512_cvtepi32_epi8(high);
  if (nibbles) {
    const __m128i order = _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    low_bytes = _mm_shuffle_epi8(low_bytes, order);
    high_bytes = _mm_shuffle_epi8(high_bytes, order);
  }
  _mm_storeu_si128(target, low_bytes);
  _mm_storeu_si128(target + 1, high_bytes);
  return group;
}

inline void round_row(const BFloat16* x, int64_t groups, Quantization quantization, int64_t count,
                      const bytes::RoundedRows& to) {
  const bool nibbles = quantization != Quantization::kInt8;
  const int32_t offset = bytes::byte_offset(quantization);
  for (int64_t at = 0; at < groups * count; at += count, x += kQuantizedGroup) {
    const ByteGroup rounded = round_to_bytes(x, nibbles, to.values + at * kQuantizedGroup);
    to.scales[at] = rounded.scale;
    to.sums[at] = rounded.scale * static_cast<float>(rounded.sum);
    to.starts[at] = -offset * rounded.sum;
  }
}

}  // namespace tandem::kernels::avx512vnni
HWY_POP_ATTRIBUTES
