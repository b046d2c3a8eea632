// Pieces of quantised panels become pieces of bf16 panels, whose integers bf16 holds exactly.
// Included once per vector target, after kernels/portable/target.h.
#if defined(TANDEM_KERNELS_PORTABLE_UNPACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_PORTABLE_UNPACK_INL_H_
#undef TANDEM_KERNELS_PORTABLE_UNPACK_INL_H_
#else
#define TANDEM_KERNELS_PORTABLE_UNPACK_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/panel_layout.h"
#include "kernels/portable/int4_bytes.h"
#include "kernels/portable/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::kernels::portable::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A step of a panel: 32 depths of bf16 or 16 of fp32.
inline constexpr int64_t kStepBytes = 2048;
inline constexpr int64_t kPieceSteps = 8;
// A half of a bf16 step holds two depths of each of 16 columns side by side.
inline constexpr int64_t kPairElements = 32;

// A piece of a quantised panel as integers in bf16, and its scales.
struct Unpacked {
  alignas(64) BFloat16 w[kPieceSteps * kStepBytes / 2];
  float scales[kPieceSteps * kPanelColumns];
  float minima[kPieceSteps * kPanelColumns];
};

using Words = hn::ScalableTag<uint16_t>;

inline void unpack_int8(const char* HWY_RESTRICT from, BFloat16* HWY_RESTRICT to) {
  const FloatTag d;
  const hn::Rebind<int8_t, FloatTag> d8;
  const hn::Rebind<int32_t, FloatTag> d32;
  const hn::Rebind<uint16_t, FloatTag> d16;
  for (int64_t i = 0; i < kStepBytes / 2; i += kLanes) {
    const auto q = hn::PromoteTo(d32, hn::LoadU(d8, reinterpret_cast<const int8_t*>(from) + i));
    const auto bits = hn::BitCast(WordTag(), hn::ConvertTo(d, q));
    hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(bits)), d16, to + i);
  }
}

// Each element of `quads` holds four bytes q + 128. The result is the q of byte `kByte`, as the
// bits of an fp32 number.
template <int kByte>
HWY_INLINE hn::Vec<WordTag> byte_bits(hn::Vec<WordTag> quads) {
  const WordTag du;
  const hn::Repartition<int32_t, WordTag> d32;
  const auto byte = hn::And(hn::ShiftRight<8 * kByte>(quads), hn::Set(du, 0xffU));
  const auto q = hn::Sub(hn::BitCast(d32, byte), hn::Set(d32, 128));
  return hn::BitCast(du, hn::ConvertTo(FloatTag(), q));
}

// The pairs of depths that are bytes `kByte` and its successor of quads.
template <int kByte>
HWY_INLINE void store_pairs(hn::Vec<WordTag> quads, BFloat16* to) {
  const WordTag du;
  const auto even = hn::ShiftRight<16>(byte_bits<kByte>(quads));
  const auto odd = hn::And(byte_bits<kByte + 1>(quads), hn::Set(du, 0xffff0000U));
  hn::StoreU(hn::Or(even, odd), du, reinterpret_cast<uint32_t*>(to));
}

inline void unpack_bytes(const char* HWY_RESTRICT from, BFloat16* HWY_RESTRICT to) {
  for (int64_t quad = 0; quad < panel_layout::kStepDepths / 4; ++quad) {
    for (int64_t i = 0; i < kPanelColumns; i += kLanes, from += kLanes * 4) {
      const auto quads = hn::LoadU(WordTag(), reinterpret_cast<const uint32_t*>(from));
      BFloat16* pairs =
          to + i / 16 * panel_layout::kTileElements + 2 * quad * kPairElements + i % 16 * 2;
      store_pairs<0>(quads, pairs);
      store_pairs<2>(quads, pairs + kPairElements);
    }
  }
}

// The bf16 of each word's lowest four bits.
template <bool kSymmetric>
HWY_INLINE hn::Vec<Words> int4_values(hn::Vec<Words> word) {
  static constexpr Int4Bytes kBytes = int4_bytes<kSymmetric>();
  const Words d;
  const hn::Repartition<uint8_t, Words> d8;
  const auto low_four = hn::And(word, hn::Set(d, uint16_t{15}));
  const auto index = hn::BitCast(d8, hn::Or(low_four, hn::ShiftLeft<8>(low_four)));
  const auto low = hn::BitCast(d, hn::TableLookupBytes(hn::LoadDup128(d8, kBytes.low), index));
  const auto high = hn::BitCast(d, hn::TableLookupBytes(hn::LoadDup128(d8, kBytes.high), index));
  return hn::Or(hn::And(low, hn::Set(d, uint16_t{0xff})),
                hn::And(high, hn::Set(d, uint16_t{0xff00})));
}

template <bool kSymmetric>
void unpack_int4(const char* HWY_RESTRICT from, BFloat16* HWY_RESTRICT to) {
  const Words d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t fours = 0; fours < 8; ++fours, to += 4 * kPairElements, from += 2 * kPairElements) {
    for (int64_t i = 0; i < kPairElements; i += lanes) {
      const auto words = hn::LoadU(d, reinterpret_cast<const uint16_t*>(from) + i);
      hn::StoreU(int4_values<kSymmetric>(words), d, to + i);
      hn::StoreU(int4_values<kSymmetric>(hn::ShiftRight<4>(words)), d, to + kPairElements + i);
      hn::StoreU(int4_values<kSymmetric>(hn::ShiftRight<8>(words)), d, to + 2 * kPairElements + i);
      hn::StoreU(int4_values<kSymmetric>(hn::ShiftRight<12>(words)), d, to + 3 * kPairElements + i);
    }
  }
}

inline void unpack_steps(const PackedMatrix& matrix, const char* from, int64_t steps,
                         Unpacked& to) {
  const Quantization quantization = matrix.quantization;
  const FloatTag d;
  const hn::Rebind<hwy::float16_t, FloatTag> d16;
  const int64_t value_bytes = panel_layout::step_value_bytes(quantization);
  for (int64_t step = 0; step < steps; ++step) {
    BFloat16* w = to.w + step * kStepBytes / 2;
    if (quantization == Quantization::kInt8 && matrix.int8_products()) {
      unpack_bytes(from, w);
    } else if (quantization == Quantization::kInt8) {
      unpack_int8(from, w);
    } else if (quantization == Quantization::kInt4) {
      unpack_int4<false>(from, w);
    } else {
      unpack_int4<true>(from, w);
    }
    const auto* scales = reinterpret_cast<const hwy::float16_t*>(from + value_bytes);
    for (int64_t i = 0; i < kPanelColumns; i += kLanes) {
      const int64_t at = step * kPanelColumns + i;
      hn::StoreU(hn::PromoteTo(d, hn::LoadU(d16, scales + i)), d, to.scales + at);
      if (has_minimum(quantization)) {
        hn::StoreU(hn::PromoteTo(d, hn::LoadU(d16, scales + kPanelColumns + i)), d, to.minima + at);
      }
    }
    from += panel_layout::step_bytes(quantization);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tandem::kernels::portable::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
