// How the sums of a row of products leave a kernel: to y with bias and residual, or through
// SiLU(gate) * up. For every vector target.
#include "kernels/portable/portable.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/portable/result_rows.cc"
#include "kernels/portable/target.h"
#if TANDEM_PORTABLE_TARGET

#include "kernels/portable/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::kernels::portable::HWY_NAMESPACE {
namespace {

void store_row(const GemmArgs& args, const float* sums, int64_t row, int64_t column) {
  const FloatTag d;
  float* y = args.y + row * args.y_stride + column;
  for (int64_t i = 0; i < kPanelColumns; i += kLanes) {
    FloatVec sum = hn::LoadU(d, sums + i);
    if (args.bias != nullptr) {
      sum = hn::Add(sum, hn::LoadU(d, args.bias + column + i));
    }
    if (args.store == GemmStore::kAdd) {
      sum = hn::Add(hn::LoadU(d, y + i), sum);
    }
    hn::StoreU(sum, d, y + i);
  }
}

void store_activated(const GemmArgs& args, const float* gate, const float* up, int64_t row,
                     int64_t column) {
  silu_mul_row(gate, up, static_cast<BFloat16*>(args.activated) + row * args.y_stride + column);
}

}  // namespace

void fill_result_rows(ResultRows& rows) { rows = {store_row, store_activated}; }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tandem::kernels::portable::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace tandem::kernels::portable {
TANDEM_PORTABLE_EXPORT(fill_result_rows, ResultRows)
}
#endif
