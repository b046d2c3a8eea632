// Rows of activations rounded to int8 (round_group, quantize.h) by AVX-512 intrinsics, in the order
// in which the products of bytes read them.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/gemm.h"
#include "kernels/quantize.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512bw,avx512dq")
namespace tandem::kernels::avx512vnni {

inline constexpr int64_t kByteBlockRows = 6;  // whose results registers hold

// The rounded rows of a set. Row r of a block of `count` rows that begins at row `begin` has its
// group g at index begin * groups + g * count + r, its values at 32 times that.
struct RoundedRows {
  int8_t* values = nullptr;
  float* scales = nullptr;
  float* sums = nullptr;      // RoundedGroup::element_sum
  int32_t* starts = nullptr;  // minus the weights' offset times RoundedGroup::sum

  // The rows and groups from index `at` on.
  [[nodiscard]] RoundedRows from(int64_t at) const {
    return {values + at * kQuantizedGroup, scales + at, sums + at, starts + at};
  }
};

// A weight plus this offset is an unsigned byte.
constexpr int32_t byte_offset(Quantization quantization) {
  return quantization == Quantization::kInt8            ? 128
         : quantization == Quantization::kInt4Symmetric ? 8
                                                        : 0;
}

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

// Where the blocks of a set begin: their sizes differ by one row at most.
inline int64_t block_begin(int64_t block, int64_t rows) {
  return block * rows / divide_up(rows, kByteBlockRows);
}

inline void round_rows(const GemmArgs& args, int64_t set, int64_t rows, const RoundedRows& to) {
  const int64_t groups = args.w.k / kQuantizedGroup;
  const bool nibbles = args.w.quantization != Quantization::kInt8;
  const int32_t offset = byte_offset(args.w.quantization);
  for (int64_t block = 0; block < divide_up(rows, kByteBlockRows); ++block) {
    const int64_t begin = block_begin(block, rows);
    const int64_t count = block_begin(block + 1, rows) - begin;
    for (int64_t row = 0; row < count; ++row) {
      const auto* x = static_cast<const BFloat16*>(args.x) + (set + begin + row) * args.x_stride;
      int64_t at = begin * groups + row;
      for (int64_t group = 0; group < groups; ++group, x += kQuantizedGroup, at += count) {
        const ByteGroup rounded = round_to_bytes(x, nibbles, to.values + at * kQuantizedGroup);
        to.scales[at] = rounded.scale;
        to.sums[at] = rounded.scale * static_cast<float>(rounded.sum);
        to.starts[at] = -offset * rounded.sum;
      }
    }
  }
}

}  // namespace tandem::kernels::avx512vnni
HWY_POP_ATTRIBUTES
