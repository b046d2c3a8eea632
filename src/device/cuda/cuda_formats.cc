#include "device/cuda/cuda_formats.h"

#include <algorithm>

#include "device/cuda/cuda_ops.h"
#include "device/cuda/planned_attention.h"

namespace tandem::device::cuda {
namespace {

// Rows of the longest context whose splits' records the workspace of attention holds. More rows
// take more passes.
constexpr int64_t kWorkspaceRows = 4;

constexpr int64_t kLineBytes = 64;

class CudaFormats final : public Formats {
 public:
  CudaFormats(ElementType residual, bool flash) : residual_(residual), flash_(flash) {}
  [[nodiscard]] bool supports(const WeightFormat& format) const override {
    return format == weight_format(format.type, Quantization::kNone) &&
           (format.type == ElementType::kF32 || format.type == ElementType::kBF16);
  }
  [[nodiscard]] int64_t weight_bytes(const WeightFormat& format, int64_t n,
                                     int64_t k) const override {
    return n * k * element_bytes(format.type);
  }
  [[nodiscard]] NumberTypes numbers(const WeightFormat& format) const override {
    const bool narrow = format.type == residual_;
    return {.activation = format.type,
            .residual = narrow ? residual_ : ElementType::kF32,
            .attended = format.type};
  }
  [[nodiscard]] ElementType query_type(const kernels::KvLayout& layout,
                                       ElementType attended) const override {
    return flash_ && PlannedAttention::serves(layout) && attended == ElementType::kBF16
               ? ElementType::kBF16
               : ElementType::kF32;
  }
  [[nodiscard]] int64_t attention_workspace_bytes(const AttentionBounds& bounds) const override {
    const int64_t plain =
        kWorkspaceRows * bounds.heads * attention_pair_bytes(bounds.layout, bounds.max_context, 0);
    return PlannedAttention::serves(bounds.layout)
               ? std::max(plain, PlannedAttention::workspace_bytes(bounds.layout, bounds.heads))
               : plain;
  }
  // Without gaps, as FlashInfer takes attention results; a GPU's caches do not mind powers of two.
  [[nodiscard]] int64_t row_stride(int64_t columns, ElementType type) const override {
    const int64_t line = kLineBytes / element_bytes(type);
    return (columns + line - 1) / line * line;
  }

 private:
  const ElementType residual_;
  const bool flash_;
};

}  // namespace

const Formats& cuda_formats(ElementType residual, bool flash) {
  static const CudaFormats kWide(ElementType::kF32, false);
  static const CudaFormats kWideFlash(ElementType::kF32, true);
  static const CudaFormats kNarrow(ElementType::kBF16, false);
  static const CudaFormats kNarrowFlash(ElementType::kBF16, true);
  if (residual == ElementType::kBF16) {
    return flash ? kNarrowFlash : kNarrow;
  }
  return flash ? kWideFlash : kWide;
}

}  // namespace tandem::device::cuda
