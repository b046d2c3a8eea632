// Reference matrix kernels over row-major weights [n, k]. Quantised: [n, k / 32] groups, each its
// scale, its minimum if it has one, and its integers in order, two of int4 in a byte (symmetric: as
// q + 8), the lower bits first.
#include <cmath>
#include <cstring>

#include "kernels/pack_source.h"
#include "kernels/quantize.h"
#include "kernels/ref/ref.h"

namespace tandem::kernels::ref {

namespace {

float element(const void* data, ElementType type, int64_t index) {
  return type == ElementType::kF32 ? static_cast<const float*>(data)[index]
                                   : bf16_to_f32(static_cast<const BFloat16*>(data)[index]);
}

int64_t group_bytes(Quantization quantization) {
  return group_scale_bytes(quantization) + group_value_bytes(quantization);
}
int int4_offset(Quantization quantization) {
  return quantization == Quantization::kInt4Symmetric ? 8 : 0;
}

void store_group(Quantization quantization, const QuantizedGroup& group, std::byte* to) {
  std::memcpy(to, &group.scale, 2);
  if (has_minimum(quantization)) {
    std::memcpy(to + 2, &group.minimum, 2);
  }
  to += group_scale_bytes(quantization);
  const int offset = int4_offset(quantization);
  for (int64_t i = 0; i < group_value_bytes(quantization); ++i) {
    const int value = quantization == Quantization::kInt8
                          ? group.values[i]
                          : (group.values[2 * i] + offset) | (group.values[2 * i + 1] + offset)
                                                                 << 4;
    to[i] = static_cast<std::byte>(value);
  }
}

float quantized_element(const PackedMatrix& matrix, int64_t index) {
  const auto* group = static_cast<const std::byte*>(matrix.data) +
                      index / kQuantizedGroup * group_bytes(matrix.quantization);
  const int64_t i = index % kQuantizedGroup;
  const auto* values = group + group_scale_bytes(matrix.quantization);
  QuantizedGroup one;
  std::memcpy(&one.scale, group, 2);
  if (has_minimum(matrix.quantization)) {
    std::memcpy(&one.minimum, group + 2, 2);
  }
  const int q = matrix.quantization == Quantization::kInt8
                    ? static_cast<int8_t>(values[i])
                    : (static_cast<int>(values[i / 2]) >> (4 * (i % 2)) & 15) -
                          int4_offset(matrix.quantization);
  one.values[0] = static_cast<int8_t>(q);
  return one.element(0);
}

// W[n, k] of a packed matrix.
float weight(const PackedMatrix& matrix, int64_t n, int64_t k) {
  const int64_t index = n * matrix.k + k;
  return matrix.quantized() ? quantized_element(matrix, index)
                            : element(matrix.data, matrix.type, index);
}

// Quantised weights: room for a column (of silu(gate) * up: for two).
int64_t gemm_scratch_bytes(const GemmArgs& args) {
  return args.w.quantized() ? 2 * args.w.k * static_cast<int64_t>(sizeof(float)) : 0;
}

void quantize_row(const PackArgs& args, int64_t n, int64_t column) {
  const Quantization quantization = args.target.quantization;
  for (int64_t k = 0; k < args.target.k; k += kQuantizedGroup) {
    QuantizedGroup room;
    const QuantizedGroup* group = source_group(args, n, k, room);
    if (group == nullptr) {
      float values[kQuantizedGroup];
      for (int64_t i = 0; i < kQuantizedGroup; ++i) {
        values[i] = padded_source_value(args, n, k + i);
      }
      room = quantize_group(quantization, values);
      group = &room;
    }
    store_group(quantization, *group,
                static_cast<std::byte*>(args.target_data) +
                    (column * args.target.k + k) / kQuantizedGroup * group_bytes(quantization));
  }
}

void pack(const PackArgs& args, int64_t panel_begin, int64_t panel_end) {
  const int64_t depth = args.target.k;
  for (int64_t n = panel_begin * kPanelColumns; n < panel_end * kPanelColumns; ++n) {
    const int64_t panel = n / kPanelColumns * args.panel_step;
    const int64_t column = args.n_offset + panel * kPanelColumns + n % kPanelColumns;
    if (args.target.quantized()) {
      quantize_row(args, n, column);
      continue;
    }
    for (int64_t k = 0; k < depth; ++k) {
      const float value = padded_source_value(args, n, k);
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
    out[k] = weight(matrix, row, k);
  }
}

// Column n of the weights: quantised, it is decoded into `room` once for all rows; of other
// weights `room` is not read and may be null.
class Column {
 public:
  Column(const GemmArgs& args, int64_t n, float* room) : args_(args), n_(n), decoded_(room) {
    if (args.w.quantized()) {
      unpack_row(args.w, n, room);
    }
  }

  [[nodiscard]] float product(int64_t row) const {
    const PackedMatrix& w = args_.w;
    float sum = 0.0F;
    for (int64_t k = 0; k < w.k; ++k) {
      sum += element(args_.x, w.type, row * args_.x_stride + k) *
             (w.quantized() ? decoded_[k] : weight(w, n_, k));
    }
    return sum;
  }

 private:
  const GemmArgs& args_;
  const int64_t n_;
  const float* decoded_;
};

void gemm_silu_mul(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, float* room) {
  float* const room_of_ups = room == nullptr ? nullptr : room + args.w.k;
  for (int64_t panel = panel_begin; panel < panel_end; panel += 2) {
    for (int64_t column = 0; column < kPanelColumns; ++column) {
      const Column gates(args, panel * kPanelColumns + column, room);
      const Column ups(args, (panel + 1) * kPanelColumns + column, room_of_ups);
      for (int64_t row = 0; row < args.rows; ++row) {
        const float gate = gates.product(row);
        const float value = gate / (1.0F + std::exp(-gate)) * ups.product(row);
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

void gemm(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch) {
  auto* room = static_cast<float*>(scratch);
  if (args.store == GemmStore::kSiluMul) {
    gemm_silu_mul(args, panel_begin, panel_end, room);
    return;
  }
  for (int64_t n = panel_begin * kPanelColumns; n < panel_end * kPanelColumns; ++n) {
    const Column column(args, n, room);
    for (int64_t row = 0; row < args.rows; ++row) {
      float sum = column.product(row);
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
