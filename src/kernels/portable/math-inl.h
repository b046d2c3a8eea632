// Vector helpers of the portable kernels: exp, SiLU, bf16 stores. Included once per vector target,
// after kernels/portable/target.h.
#if defined(TANDEM_KERNELS_PORTABLE_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_PORTABLE_MATH_INL_H_
#undef TANDEM_KERNELS_PORTABLE_MATH_INL_H_
#else
#define TANDEM_KERNELS_PORTABLE_MATH_INL_H_
#endif

#include <cstdint>

#include "base/element_type.h"
#include "hwy/highway.h"
#include "kernels/exp.h"
#include "kernels/gemm.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::kernels::portable::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using WordTag = hn::RebindToUnsigned<FloatTag>;
using HalfTag = hn::Rebind<uint16_t, FloatTag>;
using FloatVec = hn::Vec<FloatTag>;
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(FloatTag()));

// exp(x), about 1 ulp; below kExpLowest 0, above kExpHighest exp(kExpHighest), NaN stays NaN. The
// same operations as exp_scalar, so every target gives the same bits.
HWY_INLINE FloatVec vector_exp(FloatVec x) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  // The bound comes first: x86 gives the second operand when one is NaN.
  const FloatVec clamped = hn::Max(hn::Set(d, kExpLowest), hn::Min(hn::Set(d, kExpHighest), x));
  const FloatVec magic = hn::Set(d, kExpRoundMagic);
  const FloatVec n = hn::Sub(hn::MulAdd(clamped, hn::Set(d, kExpLog2e), magic), magic);
  FloatVec r = hn::MulAdd(n, hn::Set(d, -kExpLn2High), clamped);
  r = hn::MulAdd(n, hn::Set(d, -kExpLn2Low), r);
  FloatVec p = hn::Set(d, kExpC7);
  p = hn::MulAdd(p, r, hn::Set(d, kExpC6));
  p = hn::MulAdd(p, r, hn::Set(d, kExpC5));
  p = hn::MulAdd(p, r, hn::Set(d, kExpC4));
  p = hn::MulAdd(p, r, hn::Set(d, kExpC3));
  p = hn::MulAdd(p, r, hn::Set(d, kExpC2));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F));
  const auto exponent = hn::ShiftLeft<23>(hn::ConvertTo(di, n));
  const FloatVec y = hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, kExpLowest)), y);
}

// Round to nearest even, NaN stays NaN, as f32_to_bf16.
HWY_INLINE hn::Vec<HalfTag> to_bf16(FloatVec x) {
  const WordTag dw;
  const auto bits = hn::BitCast(dw, x);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(dw, 1U));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(dw, 0x7fffU))));
  const auto quiet = hn::Or(upper, hn::Set(dw, 0x40U));
  const auto is_nan = hn::RebindMask(dw, hn::Ne(x, x));
  return hn::TruncateTo(HalfTag(), hn::IfThenElse(is_nan, quiet, rounded));
}

HWY_INLINE void store_vector(FloatVec x, float* to) { hn::StoreU(x, FloatTag(), to); }
HWY_INLINE void store_vector(FloatVec x, BFloat16* to) { hn::StoreU(to_bf16(x), HalfTag(), to); }

// silu(gate) * up of a panel's columns.
template <typename Out>
HWY_INLINE void silu_mul_row(const float* gate, const float* up, Out* y) {
  const FloatTag d;
  const FloatVec unit = hn::Set(d, 1.0F);
  for (int64_t i = 0; i < kPanelColumns; i += kLanes) {
    const FloatVec g = hn::LoadU(d, gate + i);
    const FloatVec silu = hn::Div(g, hn::Add(unit, vector_exp(hn::Neg(g))));
    store_vector(hn::Mul(silu, hn::LoadU(d, up + i)), y + i);
  }
}

HWY_INLINE void store_scalar(float x, float* to) { *to = x; }
HWY_INLINE void store_scalar(float x, BFloat16* to) { *to = f32_to_bf16(x); }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tandem::kernels::portable::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
