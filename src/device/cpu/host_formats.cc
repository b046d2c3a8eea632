#include "device/cpu/host_formats.h"

#include "kernels/attention.h"
#include "kernels/gemm.h"

namespace tandem::device {
namespace {

class HostFormats final : public Formats {
 public:
  [[nodiscard]] bool supports(const WeightFormat& format) const override {
    const bool quantized = format.quantization != Quantization::kNone;
    return format == weight_format(format.type, format.quantization, format.activations) &&
           (format.type == ElementType::kBF16 || (format.type == ElementType::kF32 && !quantized));
  }
  [[nodiscard]] int64_t weight_bytes(const WeightFormat& format, int64_t n,
                                     int64_t k) const override {
    return packed({.format = format, .n = n, .k = k}).bytes();
  }
  // Kernels multiply equal types, and quantised weights with bf16; sums and the residual are fp32.
  [[nodiscard]] NumberTypes numbers(const WeightFormat& format) const override {
    return {.activation = format.type, .residual = ElementType::kF32, .attended = format.type};
  }
  [[nodiscard]] int64_t attention_workspace_bytes(const AttentionBounds& bounds) const override {
    return kernels::partial_room(bounds.layout, bounds.heads, bounds.max_context, bounds.threads) *
           static_cast<int64_t>(sizeof(float));
  }
  [[nodiscard]] int64_t row_stride(int64_t columns, ElementType type) const override {
    return kernels::spread_stride(columns, type);
  }
};

}  // namespace

const Formats& host_formats() {
  static const HostFormats kFormats;
  return kFormats;
}

kernels::PackedMatrix packed(const WeightMatrix& matrix) {
  return {.data = matrix.data,
          .type = matrix.format.type,
          .n = matrix.n,
          .k = matrix.k,
          .quantization = matrix.format.quantization,
          .activations = matrix.format.activations};
}

kernels::PackArgs pack_args(const UploadOp& upload) {
  kernels::PackArgs args{.source = upload.source,
                         .source_type = upload.source_type,
                         .source_quantization = upload.source_quantization,
                         .n = upload.n,
                         .k = upload.k,
                         .target = packed(upload.target),
                         .target_data = upload.target_data,
                         .n_offset = upload.n_offset};
  if (upload.part != WeightPart::kRows) {  // panels of gate and up in turn
    args.panel_step = 2;
    args.n_offset =
        2 * upload.n_offset + (upload.part == WeightPart::kUp ? kernels::kPanelColumns : 0);
  }
  return args;
}

}  // namespace tandem::device
