// Reference matrix kernels over row-major weights [n, k].
#include "kernels/pack_source.h"
#include "kernels/ref/ref.h"

namespace tandem::kernels::ref {

namespace {

float element(const void* data, ElementType type, int64_t index) {
  return type == ElementType::kF32 ? static_cast<const float*>(data)[index]
                                   : bf16_to_f32(static_cast<const BFloat16*>(data)[index]);
}

int64_t gemm_scratch_bytes(const GemmArgs& /*args*/) { return 0; }

void pack(const PackArgs& args, int64_t panel_begin, int64_t panel_end) {
  const int64_t depth = args.target.k;
  for (int64_t n = panel_begin * kPanelColumns; n < panel_end * kPanelColumns; ++n) {
    for (int64_t k = 0; k < depth; ++k) {
      const float value = padded_source_value(args, n, k);
      const int64_t at = (args.n_offset + n) * depth + k;
      if (args.target.type == ElementType::kF32) {
        static_cast<float*>(args.target_data)[at] = value;
      } else {
        static_cast<BFloat16*>(args.target_data)[at] = f32_to_bf16(value);
      }
    }
  }
}

void unpack_row(const PackedMatrix& matrix, int64_t row, float* out) {
  for (int64_t k = 0; k < matrix.k; ++k) {
    out[k] = element(matrix.data, matrix.type, row * matrix.k + k);
  }
}

void gemm(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* /*scratch*/) {
  const PackedMatrix& w = args.w;
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t n = panel_begin * kPanelColumns; n < panel_end * kPanelColumns; ++n) {
      float sum = 0.0F;
      for (int64_t k = 0; k < w.k; ++k) {
        sum +=
            element(args.x, w.type, row * args.x_stride + k) * element(w.data, w.type, n * w.k + k);
      }
      if (args.bias != nullptr) {
        sum += args.bias[n];
      }
      float& y = args.y[row * args.y_stride + n];
      y = args.store == GemmStore::kAdd ? y + sum : sum;
    }
  }
}

void embed(const EmbedArgs& args, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    unpack_row(args.table, args.ids[row], args.y + row * args.y_stride);
  }
}

}  // namespace

void fill_gemm(Kernels& table) {
  table.gemm_scratch_bytes = gemm_scratch_bytes;
  table.pack = pack;
  table.unpack_row = unpack_row;
  table.gemm = gemm;
  table.embed = embed;
}

}  // namespace tandem::kernels::ref
