#include "kernels/panel_layout.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/pack_source.h"
#include "kernels/quantize.h"

namespace tandem::kernels::panel_layout {

namespace {

constexpr int64_t kBlock = kDepthMultiple;

float convert(const PackArgs& args, int64_t index, float /*to*/) {
  return source_value(args, index);
}
BFloat16 convert(const PackArgs& args, int64_t index, BFloat16 /*to*/) {
  return f32_to_bf16(source_value(args, index));
}

template <class T>
constexpr ElementType kTypeOf = std::is_same_v<T, float> ? ElementType::kF32 : ElementType::kBF16;

// W[padded n, k_begin .. k_begin + 32) in the target's type; as floats for a quantised one.
template <class T>
void read_block(const PackArgs& args, int64_t n, int64_t k_begin, T (&out)[kBlock]) {
  std::fill(out, out + kBlock, T{0});
  const int64_t row = logical_index(args.n, n);
  if (row < 0) {
    return;
  }
  const int64_t base = row * args.k.logical;
  const int64_t inside = k_begin % args.k.padded_group;
  const int64_t first = k_begin / args.k.padded_group * args.k.group + inside;
  if (inside + kBlock <= args.k.group && args.source_type == kTypeOf<T> &&
      args.source_quantization == Quantization::kNone) {
    std::memcpy(out, static_cast<const char*>(args.source) + (base + first) * int64_t{sizeof(T)},
                sizeof(out));
    return;
  }
  if (inside + kBlock <= args.k.padded_group) {  // the block lies in one group
    const int64_t count = std::clamp<int64_t>(args.k.group - inside, 0, kBlock);
    for (int64_t i = 0; i < count; ++i) {
      out[i] = convert(args, base + first + i, T{});
    }
    return;
  }
  for (int64_t i = 0; i < kBlock; ++i) {
    const int64_t k = logical_index(args.k, k_begin + i);
    if (k >= 0) {
      out[i] = convert(args, base + k, T{});
    }
  }
}

// Index of the first pair's word of four, of one depth of a column's pairs, in an int4 step.
constexpr int64_t int4_word(int64_t column, int64_t fours, int64_t parity) {
  return column / 16 * 128 + fours * 32 + column % 16 * 2 + parity;
}

// What is added to an int4 so that it is not negative.
constexpr int int4_offset(Quantization quantization) {
  return quantization == Quantization::kInt4Symmetric ? 8 : 0;
}

// Turns over the highest bit of each of four bytes: q becomes q + 128.
constexpr uint32_t kByteOffsets = 0x80808080;

// The nibbles at bits 0, 16, 32 and 48 side by side.
constexpr uint16_t gather_nibbles(uint64_t apart) {
  apart &= 0x000f000f000f000fU;
  apart |= apart >> 12;  // at bits 0, 4; 32, 36
  return static_cast<uint16_t>(apart | apart >> 24);
}

// In a file of some gigabytes this is most of the time that loading takes.
void store_group(const PackedMatrix& matrix, const QuantizedGroup& group, int64_t column,
                 std::byte* step) {
  const Quantization quantization = matrix.quantization;
  if (quantization == Quantization::kInt8 && matrix.int8_products()) {
    for (int64_t k = 0; k < kStepDepths; k += 4) {
      uint32_t quad = 0;
      std::memcpy(&quad, group.values + k, sizeof quad);
      quad ^= kByteOffsets;
      std::memcpy(step + quad_index(column, k, kStepDepths), &quad, sizeof quad);
    }
  } else if (quantization == Quantization::kInt8) {
    for (int64_t k = 0; k < kStepDepths; k += 2) {
      std::memcpy(step + bf16_index(column, k, kStepDepths), group.values + k, 2);
    }
  } else {
    // q + 8 of four bits is q with its highest bit turned over.
    const uint64_t turned = int4_offset(quantization) == 0 ? 0 : uint64_t{0x0808080808080808};
    for (int64_t fours = 0; fours < 4; ++fours) {
      uint64_t values = 0;
      std::memcpy(&values, group.values + fours * 8, sizeof values);
      values ^= turned;
      const uint16_t even = gather_nibbles(values);
      const uint16_t odd = gather_nibbles(values >> 8);
      std::memcpy(step + int4_word(column, fours, 0) * 2, &even, 2);
      std::memcpy(step + int4_word(column, fours, 1) * 2, &odd, 2);
    }
  }
  std::byte* scales = step + step_value_bytes(quantization);
  std::memcpy(scales + column * 2, &group.scale, 2);
  if (has_minimum(quantization)) {
    std::memcpy(scales + kScalesBytes + column * 2, &group.minimum, 2);
  }
}

QuantizedGroup load_group(const PackedMatrix& matrix, const std::byte* step, int64_t column) {
  const Quantization quantization = matrix.quantization;
  QuantizedGroup group;
  for (int64_t k = 0; k < kStepDepths; ++k) {
    if (quantization == Quantization::kInt8 && matrix.int8_products()) {
      const auto byte = static_cast<uint8_t>(step[quad_index(column, k, kStepDepths)]);
      group.values[k] = static_cast<int8_t>(byte ^ uint8_t{0x80});
    } else if (quantization == Quantization::kInt8) {
      std::memcpy(group.values + k, step + bf16_index(column, k, kStepDepths), 1);
    } else {
      uint16_t word = 0;
      std::memcpy(&word, step + int4_word(column, k / 8, k % 2) * 2, 2);
      group.values[k] =
          static_cast<int8_t>((word >> (4 * (k / 2 % 4)) & 15) - int4_offset(quantization));
    }
  }
  const std::byte* scales = step + step_value_bytes(quantization);
  std::memcpy(&group.scale, scales + column * 2, 2);
  if (has_minimum(quantization)) {
    std::memcpy(&group.minimum, scales + kScalesBytes + column * 2, 2);
  }
  return group;
}

// Offset of the step that holds W[n, k].
int64_t step_offset(const PackedMatrix& matrix, int64_t n, int64_t k) {
  return (n / kPanelColumns * (matrix.k / kStepDepths) + k / kStepDepths) *
         step_bytes(matrix.quantization);
}

void pack_block(const PackArgs& args, int64_t n, int64_t k, int64_t target_n) {
  const int64_t depth = args.target.k;
  if (args.target.quantized()) {
    QuantizedGroup room;
    const QuantizedGroup* group = source_group(args, n, k, room);
    if (group == nullptr) {
      float block[kBlock];
      read_block(args, n, k, block);
      room = quantize_group(args.target.quantization, block);
      group = &room;
    }
    store_group(args.target, *group, target_n % kPanelColumns,
                static_cast<std::byte*>(args.target_data) + step_offset(args.target, target_n, k));
  } else if (args.target.type == ElementType::kF32) {
    float block[kBlock];
    read_block(args, n, k, block);
    float* to = static_cast<float*>(args.target_data) + f32_index(target_n, k, depth);
    for (int64_t i = 0; i < kBlock; ++i) {
      to[i * kPanelColumns] = block[i];
    }
  } else {
    BFloat16 block[kBlock];
    read_block(args, n, k, block);
    BFloat16* to = static_cast<BFloat16*>(args.target_data) + bf16_index(target_n, k, depth);
    for (int64_t pair = 0; pair < kBlock / 2; ++pair) {
      std::memcpy(to + pair * 32, block + pair * 2, 4);
    }
  }
}

void unpack_group(const PackedMatrix& matrix, int64_t row, int64_t block, float* out) {
  const QuantizedGroup group = load_group(
      matrix, static_cast<const std::byte*>(matrix.data) + step_offset(matrix, row, block),
      row % kPanelColumns);
  for (int64_t i = 0; i < kBlock; ++i) {
    out[i] = group.element(i);
  }
}

}  // namespace

void pack(const PackArgs& args, int64_t panel_begin, int64_t panel_end) {
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const int64_t target = args.n_offset + panel * args.panel_step * kPanelColumns;
    for (int64_t k = 0; k < args.target.k; k += kBlock) {
      for (int64_t column = 0; column < kPanelColumns; ++column) {
        pack_block(args, panel * kPanelColumns + column, k, target + column);
      }
    }
  }
}

void unpack_row(const PackedMatrix& matrix, int64_t row, float* out) {
  for (int64_t block = 0; block < matrix.k; block += kBlock) {
    if (matrix.quantized()) {
      unpack_group(matrix, row, block, out + block);
    } else if (matrix.type == ElementType::kF32) {
      const float* from = static_cast<const float*>(matrix.data) + f32_index(row, block, matrix.k);
      for (int64_t i = 0; i < kBlock; ++i) {
        out[block + i] = from[i * kPanelColumns];
      }
    } else {
      const BFloat16* from =
          static_cast<const BFloat16*>(matrix.data) + bf16_index(row, block, matrix.k);
      for (int64_t pair = 0; pair < kBlock / 2; ++pair) {
        out[block + pair * 2] = bf16_to_f32(from[pair * 32]);
        out[block + pair * 2 + 1] = bf16_to_f32(from[pair * 32 + 1]);
      }
    }
  }
}

void embed(const EmbedArgs& args, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    unpack_row(args.table, args.ids[row], args.y + row * args.y_stride);
  }
}

}  // namespace tandem::kernels::panel_layout
