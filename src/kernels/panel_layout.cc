#include "kernels/panel_layout.h"

#include <algorithm>
#include <cstring>

#include "kernels/pack_source.h"

namespace tandem::kernels::panel_layout {

namespace {

constexpr int64_t kBlock = kDepthMultiple;

float convert(const PackArgs& args, int64_t index, float /*to*/) {
  return source_value(args, index);
}
BFloat16 convert(const PackArgs& args, int64_t index, BFloat16 /*to*/) {
  return f32_to_bf16(source_value(args, index));
}

// W[padded n, k_begin .. k_begin + 32) in the target's type.
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
  if (inside + kBlock <= args.k.group && args.source_type == args.target.type) {
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

}  // namespace

void pack(const PackArgs& args, int64_t panel_begin, int64_t panel_end) {
  const int64_t depth = args.target.k;
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    for (int64_t k = 0; k < depth; k += kBlock) {
      for (int64_t column = 0; column < kPanelColumns; ++column) {
        const int64_t n = panel * kPanelColumns + column;
        const int64_t target_n = args.n_offset + panel * args.panel_step * kPanelColumns + column;
        if (args.target.type == ElementType::kF32) {
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
    }
  }
}

void unpack_row(const PackedMatrix& matrix, int64_t row, float* out) {
  for (int64_t block = 0; block < matrix.k; block += kBlock) {
    if (matrix.type == ElementType::kF32) {
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
