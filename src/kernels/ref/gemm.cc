// Reference matrix kernels over row-major weights [n, k].
#include <cmath>

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
      const int64_t panel = n / kPanelColumns * args.panel_step;
      const int64_t column = args.n_offset + panel * kPanelColumns + n % kPanelColumns;
      const int64_t at = column * depth + k;
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

float product(const GemmArgs& args, int64_t row, int64_t n) {
  const PackedMatrix& w = args.w;
  float sum = 0.0F;
  for (int64_t k = 0; k < w.k; ++k) {
    sum += element(args.x, w.type, row * args.x_stride + k) * element(w.data, w.type, n * w.k + k);
  }
  return sum;
}

void gemm_silu_mul(const GemmArgs& args, int64_t panel_begin, int64_t panel_end) {
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t panel = panel_begin; panel < panel_end; panel += 2) {
      for (int64_t column = 0; column < kPanelColumns; ++column) {
        const float gate = product(args, row, panel * kPanelColumns + column);
        const float up = product(args, row, (panel + 1) * kPanelColumns + column);
        const float value = gate / (1.0F + std::exp(-gate)) * up;
        const int64_t at = row * args.y_stride + panel / 2 * kPanelColumns + column;
        if (args.w.type == ElementType::kF32) {
          static_cast<float*>(args.activated)[at] = value;
        } else {
          static_cast<BFloat16*>(args.activated)[at] = f32_to_bf16(value);
        }
      }
    }
  }
}

void gemm(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* /*scratch*/) {
  if (args.store == GemmStore::kSiluMul) {
    gemm_silu_mul(args, panel_begin, panel_end);
    return;
  }
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t n = panel_begin * kPanelColumns; n < panel_end * kPanelColumns; ++n) {
      float sum = product(args, row, n);
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
