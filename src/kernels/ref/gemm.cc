// Reference matrix kernels over row-major weights [n, k]. Quantised: [n, k / 32] groups, each its
// scale, its minimum if it has one, and its integers in order, two of int4 in a byte (symmetric: as
// q + 8), the lower bits first.
#include <algorithm>
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

// Scale and minimum of the group that holds an element.
QuantizedGroup group_header(const PackedMatrix& matrix, int64_t index) {
  const auto* group = static_cast<const std::byte*>(matrix.data) +
                      index / kQuantizedGroup * group_bytes(matrix.quantization);
  QuantizedGroup header;
  std::memcpy(&header.scale, group, 2);
  if (has_minimum(matrix.quantization)) {
    std::memcpy(&header.minimum, group + 2, 2);
  }
  return header;
}

int quantized_value(const PackedMatrix& matrix, int64_t index) {
  const auto* values = static_cast<const std::byte*>(matrix.data) +
                       index / kQuantizedGroup * group_bytes(matrix.quantization) +
                       group_scale_bytes(matrix.quantization);
  const int64_t i = index % kQuantizedGroup;
  return matrix.quantization == Quantization::kInt8
             ? static_cast<int8_t>(values[i])
             : (static_cast<int>(values[i / 2]) >> (4 * (i % 2)) & 15) -
                   int4_offset(matrix.quantization);
}

float quantized_element(const PackedMatrix& matrix, int64_t index) {
  QuantizedGroup group = group_header(matrix, index);
  group.values[0] = static_cast<int8_t>(quantized_value(matrix, index));
  return group.element(0);
}

// W[n, k] of a packed matrix.
float weight(const PackedMatrix& matrix, int64_t n, int64_t k) {
  const int64_t index = n * matrix.k + k;
  return matrix.quantized() ? quantized_element(matrix, index)
                            : element(matrix.data, matrix.type, index);
}

constexpr int64_t kRowsRounded = 16;  // together: scratch must not grow with the rows of a step

// Quantised weights: room for a column (of silu(gate) * up: for two); of products of integers for
// some rounded rows instead.
int64_t gemm_scratch_bytes(const GemmArgs& args) {
  if (args.w.int8_products()) {
    return std::min(args.rows, kRowsRounded) * (args.w.k / kQuantizedGroup) *
           static_cast<int64_t>(sizeof(RoundedGroup));
  }
  return args.w.quantized() ? 2 * args.w.k * static_cast<int64_t>(sizeof(float)) : 0;
}

// x [rows, k / 32].
void round_all_rows(const GemmArgs& args, RoundedGroup* to) {
  for (int64_t row = 0; row < args.rows; ++row) {
    const auto* x = static_cast<const BFloat16*>(args.x) + row * args.x_stride;
    for (int64_t k = 0; k < args.w.k; k += kQuantizedGroup) {
      BFloat16 group[kQuantizedGroup];
      std::memcpy(group, x + k, sizeof group);
      *to++ = round_group(group);
    }
  }
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

// Column n of the weights: quantised, it is decoded into `room` once for all rows; of products of
// integers `room` holds the rounded rows; of other weights it is not read and may be null.
class Column {
 public:
  Column(const GemmArgs& args, int64_t n, float* room) : args_(args), n_(n), decoded_(room) {
    if (args.w.int8_products()) {
      rounded_ = reinterpret_cast<const RoundedGroup*>(room);
    } else if (args.w.quantized()) {
      unpack_row(args.w, n, room);
    }
  }

  [[nodiscard]] float product(int64_t row) const {
    const PackedMatrix& w = args_.w;
    if (w.int8_products()) {
      return int8_product(row);
    }
    float sum = 0.0F;
    for (int64_t k = 0; k < w.k; ++k) {
      sum += element(args_.x, w.type, row * args_.x_stride + k) *
             (w.quantized() ? decoded_[k] : weight(w, n_, k));
    }
    return sum;
  }

 private:
  [[nodiscard]] float int8_product(int64_t row) const {
    const PackedMatrix& w = args_.w;
    const RoundedGroup* x = rounded_ + row * (w.k / kQuantizedGroup);
    float result = 0.0F;
    for (int64_t k = 0; k < w.k; k += kQuantizedGroup, ++x) {
      const int64_t index = n_ * w.k + k;
      const QuantizedGroup header = group_header(w, index);
      int32_t sum = 0;
      for (int64_t i = 0; i < kQuantizedGroup; ++i) {
        sum += x->values[i] * quantized_value(w, index + i);
      }
      result = std::fma(f16_to_f32(header.scale) * x->scale, static_cast<float>(sum), result);
      if (has_minimum(w.quantization)) {
        result = std::fma(f16_to_f32(header.minimum), x->element_sum(), result);
      }
    }
    return result;
  }

  const GemmArgs& args_;
  const int64_t n_;
  const float* decoded_;
  const RoundedGroup* rounded_ = nullptr;  // of products of integers: all rows
};

void gemm_silu_mul(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, float* room) {
  const bool shares_room = room == nullptr || args.w.int8_products();
  float* const room_of_ups = shares_room ? room : room + args.w.k;
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

void multiply_rows(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch) {
  auto* room = static_cast<float*>(scratch);
  if (args.w.int8_products()) {
    round_all_rows(args, static_cast<RoundedGroup*>(scratch));
  }
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

// Products of integers (x and activated are bf16) take a few rows at a time; a row never depends on
// its company.
void gemm(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch) {
  const int64_t step = args.w.int8_products() ? kRowsRounded : std::max<int64_t>(args.rows, 1);
  for (int64_t row = 0; row < args.rows; row += step) {
    GemmArgs part = args;
    part.rows = std::min(step, args.rows - row);
    if (row > 0) {
      part.x = static_cast<const BFloat16*>(args.x) + row * args.x_stride;
      if (args.store == GemmStore::kSiluMul) {
        part.activated = static_cast<BFloat16*>(args.activated) + row * args.y_stride;
      } else {
        part.y = args.y + row * args.y_stride;
      }
    }
    multiply_rows(part, panel_begin, panel_end, scratch);
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
  table.prepared_bytes = prepares_nothing;
  table.prepare = nullptr;
  table.pack = pack;
  table.unpack_row = unpack_row;
  table.gemm = gemm;
  table.embed = embed;
}

}  // namespace tandem::kernels::ref
