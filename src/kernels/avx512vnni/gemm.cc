// Y = X W^T of quantised weights with activations rounded to int8: vpdpbusd adds four products of
// an unsigned and a signed byte to each of 16 sums. Registers hold the integer sums of a group and
// the results of up to 6 rows x 32 columns; bytes/gemm.h has all around them.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/avx512vnni/avx512vnni.h"
#include "kernels/avx512vnni/rounded_rows.h"
#include "kernels/bytes/gemm.h"
#include "kernels/panel_layout.h"

// gcc 12 takes the operands that its own intrinsics leave undefined for uninitialized variables.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512bw,avx512dq,avx512vnni")
namespace tandem::kernels::avx512vnni {

namespace {

using bytes::BlockPiece;
using bytes::kLine;
using bytes::RoundedRows;

constexpr int64_t kGroup = kQuantizedGroup;
constexpr int64_t kQuads = kGroup / 4;
constexpr int64_t kRowSums = kPanelColumns;

// ---------------------------------------------------------------- weights

// Two quads of depths of 16 columns, as unsigned bytes.
struct TwoQuads {
  __m512i quads[2];
};

// Quads 2 * `two` and its successor. A line of int4 has depths 0, 4, 1, 5 of eight in its lower
// bits and 2, 6, 3, 7 in the upper bits.
template <Quantization kKind>
HWY_INLINE TwoQuads load_quads(const char* step, int64_t half, int64_t two) {
  if constexpr (kKind == Quantization::kInt8) {
    const char* from = step + (4 * two + half) * kLine;
    return {{_mm512_load_si512(from), _mm512_load_si512(from + 2 * kLine)}};
  } else {
    const __m512i four_bits = _mm512_set1_epi8(15);
    const __m512i line =
        _mm512_load_si512(step + half * (panel_layout::step_value_bytes(kKind) / 2) + two * kLine);
    return {{_mm512_and_si512(line, four_bits),
             _mm512_and_si512(_mm512_srli_epi16(line, 4), four_bits)}};
  }
}

enum class GroupNumbers : uint8_t { kScales, kMinima };

// The scales or minima of 16 columns, which are half a step.
template <Quantization kKind>
HWY_INLINE __m512 load_numbers(const char* step, int64_t half, GroupNumbers numbers) {
  const bool minima = numbers == GroupNumbers::kMinima;
  const char* from = step + panel_layout::step_value_bytes(kKind);
  from += (minima ? panel_layout::kScalesBytes : 0) + half * kLine / 2;
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(from)));
}

// ---------------------------------------------------------------- products

// A quad of depths of both halves of the columns.
template <int kRows>
HWY_INLINE void multiply_quad(const int8_t* x, __m512i left, __m512i right,
                              __m512i (&sums)[kRows][2]) {
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    int32_t four = 0;
    std::memcpy(&four, x + r * kGroup, sizeof four);
    const __m512i quad = _mm512_set1_epi32(four);
    sums[r][0] = _mm512_dpbusd_epi32(sums[r][0], left, quad);
    sums[r][1] = _mm512_dpbusd_epi32(sums[r][1], right, quad);
  }
}

template <Quantization kKind, int kRows>
HWY_INLINE void multiply_step(const int8_t* x, const char* w, __m512i (&sums)[kRows][2]) {
#pragma GCC unroll 4
  for (int64_t two = 0; two < kQuads / 2; ++two, x += 8) {
    const TwoQuads left = load_quads<kKind>(w, 0, two);
    const TwoQuads right = load_quads<kKind>(w, 1, two);
    multiply_quad<kRows>(x, left.quads[0], right.quads[0], sums);
    multiply_quad<kRows>(x + 4, left.quads[1], right.quads[1], sums);
  }
}

// results += scales * the rows' scales * sums, + minima * the rows' sums. `at`: the index of the
// first row's group.
template <Quantization kKind, int kRows>
HWY_INLINE void add_group(const RoundedRows& x, int64_t at, const char* step,
                          const __m512i (&sums)[kRows][2], __m512 (&results)[kRows][2]) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const __m512 scales = load_numbers<kKind>(step, half, GroupNumbers::kScales);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m512 both = _mm512_mul_ps(scales, _mm512_set1_ps(x.scales[at + r]));
      results[r][half] = _mm512_fmadd_ps(both, _mm512_cvtepi32_ps(sums[r][half]), results[r][half]);
    }
    if constexpr (has_minimum(kKind)) {
      const __m512 minima = load_numbers<kKind>(step, half, GroupNumbers::kMinima);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        results[r][half] =
            _mm512_fmadd_ps(minima, _mm512_set1_ps(x.sums[at + r]), results[r][half]);
      }
    }
  }
}

template <Quantization kKind, int kRows>
HWY_NOINLINE void multiply_bytes(const BlockPiece& piece, float* c) {
  __m512 results[kRows][2];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    results[r][0] = piece.first ? _mm512_setzero_ps() : _mm512_load_ps(c + r * kRowSums);
    results[r][1] = piece.first ? _mm512_setzero_ps() : _mm512_load_ps(c + r * kRowSums + 16);
  }
  const char* w = piece.w;
  for (int64_t step = 0; step < piece.steps; ++step, w += panel_layout::step_bytes(kKind)) {
    const int64_t at = step * kRows;
    __m512i sums[kRows][2];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = sums[r][1] = _mm512_set1_epi32(piece.x.starts[at + r]);
    }
    bytes::fetch_part<kKind>(piece, step, w);
    multiply_step<kKind, kRows>(piece.x.values + at * kGroup, w, sums);
    add_group<kKind, kRows>(piece.x, at, w, sums, results);
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    _mm512_store_ps(c + r * kRowSums, results[r][0]);
    _mm512_store_ps(c + r * kRowSums + 16, results[r][1]);
  }
}

struct Family {
  static constexpr Isa kPortable = Isa::kAvx512;
  static constexpr int64_t kSetBytes = 640 * int64_t{1024};
  static constexpr int64_t group_bytes(Quantization /*quantization*/) { return kGroup; }
  static void round_row(const BFloat16* x, int64_t groups, Quantization quantization, int64_t count,
                        const RoundedRows& to) {
    avx512vnni::round_row(x, groups, quantization, count, to);
  }
  template <Quantization kKind, int kRows>
  static void multiply(const BlockPiece& piece, float* c) {
    multiply_bytes<kKind, kRows>(piece, c);
  }
};

}  // namespace

int64_t gemm_scratch_bytes(const GemmArgs& args) {
  return bytes::Gemm<Family>::scratch_bytes(args);
}

int64_t prepared_bytes(const GemmArgs& args) { return bytes::Gemm<Family>::prepared_bytes(args); }

void prepare(const GemmArgs& args, int64_t row_begin, int64_t row_end, void* prepared) {
  bytes::Gemm<Family>::prepare(args, row_begin, row_end, prepared);
}

void gemm(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch) {
  bytes::Gemm<Family>::multiply(args, panel_begin, panel_end, scratch);
}

void fill_gemm(Kernels& table) { bytes::EitherGemm<Family>::fill(table); }

}  // namespace tandem::kernels::avx512vnni
HWY_POP_ATTRIBUTES
