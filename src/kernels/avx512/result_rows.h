// How the sums of a row of bf16 products leave a kernel of AVX-512 intrinsics: to y with bias and
// residual, or through SiLU(gate) * up. For matrix kernels, whose sums come in rows of a panel.
#pragma once

#include <immintrin.h>

#include "hwy/highway.h"
#include "kernels/exp.h"
#include "kernels/gemm.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512bw,avx512dq")
namespace tandem::kernels::avx512 {

// y (+)= c + bias for one row of a panel.
inline void store_row(const GemmArgs& args, const float* c, int64_t row, int64_t column) {
  float* y = args.y + row * args.y_stride + column;
  for (int64_t half = 0; half < 32; half += 16) {
    __m512 sum = _mm512_load_ps(c + half);
    if (args.bias != nullptr) {
      sum = _mm512_add_ps(sum, _mm512_loadu_ps(args.bias + column + half));
    }
    if (args.store == GemmStore::kAdd) {
      sum = _mm512_add_ps(_mm512_loadu_ps(y + half), sum);
    }
    _mm512_storeu_ps(y + half, sum);
  }
}

// As exp_scalar: the same operations in the same order.
inline __m512 exp_vector(__m512 x) {
  const __m512 bounded =
      _mm512_max_ps(_mm512_set1_ps(kExpLowest), _mm512_min_ps(_mm512_set1_ps(kExpHighest), x));
  const __m512 magic = _mm512_set1_ps(kExpRoundMagic);
  const __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(bounded, _mm512_set1_ps(kExpLog2e), magic), magic);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-kExpLn2High), bounded);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(-kExpLn2Low), r);
  __m512 p = _mm512_set1_ps(kExpC7);
  for (const float factor : {kExpC6, kExpC5, kExpC4, kExpC3, kExpC2, 1.0F, 1.0F}) {
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(factor));
  }
  const __m512i exponent = _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23);
  const __m512 y = _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), exponent));
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(kExpLowest), _CMP_NLT_UQ), y);
}

// Round to nearest even, NaN stays NaN, as f32_to_bf16.
inline __m256i to_bf16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i upper = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
  const __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, is_nan, quiet));
}

// silu(gate) * up for one row of a pair of panels.
inline void store_activated(const GemmArgs& args, const float* gate, const float* up, int64_t row,
                            int64_t column) {
  BFloat16* y = static_cast<BFloat16*>(args.activated) + row * args.y_stride + column;
  for (int64_t half = 0; half < 32; half += 16) {
    const __m512 g = _mm512_load_ps(gate + half);
    const __m512 negative = _mm512_sub_ps(_mm512_set1_ps(-0.0F), g);
    const __m512 silu = _mm512_div_ps(g, _mm512_add_ps(_mm512_set1_ps(1.0F), exp_vector(negative)));
    const __m256i value = to_bf16(_mm512_mul_ps(silu, _mm512_load_ps(up + half)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + half), value);
  }
}

}  // namespace tandem::kernels::avx512
HWY_POP_ATTRIBUTES
