// Products of a few rows with a panel of quantised weights, which become fp32 in registers. For
// more rows they are unpacked to scratch first; for a few that takes longer than reading the
// weights from memory. The results have the same bits. Included once per vector target, after
// kernels/portable/target.h.
#if defined(TANDEM_KERNELS_PORTABLE_FEW_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_PORTABLE_FEW_ROWS_INL_H_
#undef TANDEM_KERNELS_PORTABLE_FEW_ROWS_INL_H_
#else
#define TANDEM_KERNELS_PORTABLE_FEW_ROWS_INL_H_
#endif

#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/panel_layout.h"
#include "kernels/portable/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::kernels::portable::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int64_t kFewRows = 6;

// The weights of a pair of depths, of a vector of columns each.
struct DepthPair {
  FloatVec even;
  FloatVec odd;
};

// Pair kPair of the four that begin at `from`.
template <Quantization kKind, int kPair>
HWY_INLINE DepthPair load_pair(const char* from) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  if constexpr (kKind == Quantization::kInt8) {
    const hn::Rebind<int16_t, FloatTag> d16;
    const auto* bytes = reinterpret_cast<const int16_t*>(from + kPair * 32);
    const auto both = hn::PromoteTo(di, hn::LoadU(d16, bytes));
    return {hn::ConvertTo(d, hn::ShiftRight<24>(hn::ShiftLeft<24>(both))),
            hn::ConvertTo(d, hn::ShiftRight<8>(both))};
  } else if constexpr (kKind == Quantization::kInt4) {
    const auto words = hn::LoadU(di, reinterpret_cast<const int32_t*>(from));
    const auto four_bits = hn::Set(di, 15);
    return {hn::ConvertTo(d, hn::And(hn::ShiftRight<4 * kPair>(words), four_bits)),
            hn::ConvertTo(d, hn::And(hn::ShiftRight<16 + 4 * kPair>(words), four_bits))};
  } else {
    // q + 8 with its highest bit turned over is q in two's complement.
    const auto words = hn::Xor(hn::LoadU(di, reinterpret_cast<const int32_t*>(from)),
                               hn::Set(di, static_cast<int32_t>(0x88888888U)));
    return {hn::ConvertTo(d, hn::ShiftRight<28>(hn::ShiftLeft<28 - 4 * kPair>(words))),
            hn::ConvertTo(d, hn::ShiftRight<28>(hn::ShiftLeft<12 - 4 * kPair>(words)))};
  }
}

// Keeps the compiler from converting the weights of more columns in advance than registers hold.
HWY_INLINE void keep_order([[maybe_unused]] FloatVec& sum) {
#if HWY_ARCH_X86
  asm("" : "+v"(sum.raw));
#endif
}

// acc[r] += x of row r * w for one depth and one vector of columns.
template <int kRows, int kVectors>
HWY_INLINE void multiply_column(const float* HWY_RESTRICT x, FloatVec w, int v,
                                Sums<kRows, kVectors>& acc) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    acc[r][v] = hn::MulAdd(hn::Set(FloatTag(), x[r * kXDepths]), w, acc[r][v]);
    keep_order(acc[r][v]);
  }
}

template <Quantization kKind, int kPair, int kRows, int kVectors>
HWY_INLINE void multiply_pair(const float* HWY_RESTRICT x, const char* w, int64_t half_bytes,
                              Sums<kRows, kVectors>& acc) {
  // Bytes of a vector of columns: of one pair of int8, or of four pairs of int4.
  constexpr int64_t kVectorBytes = (kKind == Quantization::kInt8 ? 2 : 4) * kLanes;
  // With two vectors registers hold the weights of both beside all sums, and an x is read once.
  constexpr bool kByColumns = kVectors > 2;
  FloatVec even[kVectors];
  FloatVec odd[kVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    const DepthPair pair = load_pair<kKind, kPair>(w + v / kHalfVectors * half_bytes +
                                                   v % kHalfVectors * kVectorBytes);
    if constexpr (kByColumns) {
      multiply_column<kRows, kVectors>(x + 2 * kPair + 1, pair.odd, v, acc);
      multiply_column<kRows, kVectors>(x + 2 * kPair, pair.even, v, acc);
    }
    even[v] = pair.even;
    odd[v] = pair.odd;
  }
  if constexpr (!kByColumns) {
    multiply_add<kRows, kVectors>(x + 2 * kPair + 1, odd, acc);
    multiply_add<kRows, kVectors>(x + 2 * kPair, even, acc);
  }
}

// A group's products of kVectors vectors of columns. `x`: [2][kRows][16], `w`: the first column's.
template <Quantization kKind, int kRows, int kVectors>
HWY_INLINE void multiply_group(const float* HWY_RESTRICT x, const char* w,
                               Sums<kRows, kVectors>& acc) {
  constexpr int64_t kHalfBytes = panel_layout::step_value_bytes(kKind) / 2;
  for (int fours = 0; fours < 4; ++fours, w += kHalfBytes / 4, x += 8) {
    if (fours == 2) {
      x += (kRows - 1) * kXDepths;
    }
    multiply_pair<kKind, 0, kRows, kVectors>(x, w, kHalfBytes, acc);
    multiply_pair<kKind, 1, kRows, kVectors>(x, w, kHalfBytes, acc);
    multiply_pair<kKind, 2, kRows, kVectors>(x, w, kHalfBytes, acc);
    multiply_pair<kKind, 3, kRows, kVectors>(x, w, kHalfBytes, acc);
  }
}

// sums[kRows, 32] = x * the panel at `w`. `x`: [groups * 2][kRows][16], `x_sums`: [kRows][groups],
// read if the kind has minima.
template <Quantization kKind, int kRows>
HWY_NOINLINE void multiply_few_rows(const float* HWY_RESTRICT x, const char* w, int64_t groups,
                                    const float* x_sums, float* HWY_RESTRICT sums) {
  // 16 registers hold the sums of all columns of 3 rows, or of half the columns of 6.
  constexpr int kHalves = kRows <= 3 || kLanes == 16 ? 2 : 1;
  constexpr int kVectors = kHalves * kHalfVectors;
  constexpr int64_t kAheadBytes = 4096;
  constexpr int64_t kGroupBytes = panel_layout::step_bytes(kKind);
  constexpr int64_t kValueBytes = panel_layout::step_value_bytes(kKind);
  for (int64_t group = 0; group < groups; ++group, w += kGroupBytes) {
    for (int64_t line = 0; line < kGroupBytes; line += 64) {
      hwy::Prefetch(w + kAheadBytes + line);
    }
    const auto* scales = reinterpret_cast<const hwy::float16_t*>(w + kValueBytes);
    for (int half = 0; half < 2; half += kHalves) {
      Sums<kRows, kVectors> acc;
      clear<kRows, kVectors>(acc);
      multiply_group<kKind, kRows, kVectors>(x, w + half * kValueBytes / 2, acc);
      const GroupFactors<hwy::float16_t> factors{
          .scales = scales + half * 16,
          .minima = has_minimum(kKind) ? scales + kPanelColumns + half * 16 : nullptr,
          .x_sums = x_sums + group,
          .row_step = groups};
      add_scaled<kRows, kVectors>(factors, group == 0, acc, sums + half * 16);
    }
    x += 2 * kRows * kXDepths;
  }
}

using FewRows = void (*)(const float* x, const char* w, int64_t groups, const float* x_sums,
                         float* sums);

template <Quantization kKind>
FewRows few_rows_of(int64_t rows) {
  constexpr FewRows kByRows[kFewRows] = {multiply_few_rows<kKind, 1>, multiply_few_rows<kKind, 2>,
                                         multiply_few_rows<kKind, 3>, multiply_few_rows<kKind, 4>,
                                         multiply_few_rows<kKind, 5>, multiply_few_rows<kKind, 6>};
  return kByRows[rows - 1];
}

// For 1 to kFewRows rows.
inline FewRows few_rows_of(Quantization kind, int64_t rows) {
  switch (kind) {
    case Quantization::kInt4:
      return few_rows_of<Quantization::kInt4>(rows);
    case Quantization::kInt4Symmetric:
      return few_rows_of<Quantization::kInt4Symmetric>(rows);
    default:
      return few_rows_of<Quantization::kInt8>(rows);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tandem::kernels::portable::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
