// Sums of products in registers, for the kernels that multiply matrices. Included once per vector
// target, after kernels/portable/target.h.
#if defined(TANDEM_KERNELS_PORTABLE_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_PORTABLE_PRODUCTS_INL_H_
#undef TANDEM_KERNELS_PORTABLE_PRODUCTS_INL_H_
#else
#define TANDEM_KERNELS_PORTABLE_PRODUCTS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/portable/depth_groups.h"
#include "kernels/portable/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::kernels::portable::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int kHalfVectors = static_cast<int>(16 / kLanes);  // in 16 columns of one depth

// Sums of kRows rows with kVectors vectors of columns.
template <int kRows, int kVectors>
using Sums = FloatVec[kRows][kVectors];

template <int kRows, int kVectors>
HWY_INLINE void clear(Sums<kRows, kVectors>& acc) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = hn::Zero(FloatTag());
    }
  }
}

// acc[r][v] += x of row r * w[v] for one depth.
template <int kRows, int kVectors>
HWY_INLINE void multiply_add(const float* HWY_RESTRICT x, const FloatVec (&w)[kVectors],
                             Sums<kRows, kVectors>& acc) {
  const FloatTag d;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const FloatVec value = hn::Set(d, x[r * kXDepths]);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = hn::MulAdd(value, w[v], acc[r][v]);
    }
  }
}

// The factors of a group of depths. Columns have scales and minima, in fp32 or fp16, side by side;
// rows have fp32 numbers `row_step` elements apart. Pointers are to the first column or row.
template <typename Number>
struct GroupFactors {
  const Number* scales = nullptr;
  const Number* minima = nullptr;   // null: the kind of weights has none
  const float* x_sums = nullptr;    // sums of x over the group; read if there are minima
  const float* x_scales = nullptr;  // null: x is not rounded
  int64_t row_step = 0;
};

HWY_INLINE FloatVec load_numbers(const float* from) { return hn::LoadU(FloatTag(), from); }
HWY_INLINE FloatVec load_numbers(const hwy::float16_t* from) {
  return hn::PromoteTo(FloatTag(), hn::LoadU(hn::Rebind<hwy::float16_t, FloatTag>(), from));
}

// sums (+)= scale * products (+ minimum * sum of x). `sums`: [kRows, 32], from the first column on;
// taken as zeros if this is the `first` group.
template <int kRows, int kVectors, typename Number>
HWY_INLINE void add_scaled(const GroupFactors<Number>& factors, bool first,
                           const Sums<kRows, kVectors>& products, float* HWY_RESTRICT sums) {
  const FloatTag d;
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    const FloatVec scale = load_numbers(factors.scales + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      float* sum = sums + r * kPanelColumns + v * kLanes;
      const FloatVec before = first ? hn::Zero(d) : hn::Load(d, sum);
      FloatVec factor = scale;
      if (factors.x_scales != nullptr) {
        factor = hn::Mul(scale, hn::Set(d, factors.x_scales[r * factors.row_step]));
      }
      FloatVec after = hn::MulAdd(factor, products[r][v], before);
      if (factors.minima != nullptr) {
        const FloatVec minimum = load_numbers(factors.minima + v * kLanes);
        after = hn::MulAdd(minimum, hn::Set(d, factors.x_sums[r * factors.row_step]), after);
      }
      hn::Store(after, d, sum);
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tandem::kernels::portable::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
