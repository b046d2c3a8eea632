// Y = X W^T with vector fused multiply-adds in fp32, for bf16 and fp32 weights in the panel layout.
//
// Every output is one accumulator that takes its products in the order of depth, whatever the
// number of rows or the vector width: so a row's result never depends on its company. Registers
// hold a block of R rows x 32 (or 16) columns; the rows of a block are copied to scratch as fp32,
// 16 depths of one row after those of the other, so that the inner loop reads x and w as two
// sequential streams and the copy moves whole vectors. Blocks of rows that fit the L2 cache
// together share one pass over the weights.
#include <algorithm>
#include <cstdint>

#include "hwy/cache_control.h"
#include "kernels/panel_layout.h"
#include "kernels/portable/portable.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/portable/gemm.cc"
#include "kernels/portable/target.h"
#if TANDEM_PORTABLE_TARGET

#include "kernels/portable/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::kernels::portable::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

namespace {

using F32 = hn::ScalableTag<float>;
using U32 = hn::ScalableTag<uint32_t>;
using Vec = hn::Vec<F32>;
constexpr int kHalfVectors = static_cast<int>(16 / kLanes);  // vectors in 16 columns of one depth

// Row blocks: wide ones keep all 32 columns of a panel in registers. With 16 registers (or narrow
// vectors) blocks of more than 3 rows take a panel in two halves of 16 columns.
constexpr bool kManyRegisters = kLanes == 16;
constexpr int kMaxRows = kManyRegisters ? 12 : 6;
constexpr int kRowBlocks[] = {12, 8, 6, 4, 3, 2, 1};
constexpr int kWideRows = kManyRegisters ? 12 : 3;

constexpr int64_t kPrefetchBytes = 1024;       // ahead in the stream of weights
constexpr int64_t kRowSetBytes = 1024 * 1024;  // x rows in scratch that share a pass over W

int next_row_block(int64_t rows) {
  for (const int block : kRowBlocks) {
    if (block <= kMaxRows && block <= rows) {
      return block;
    }
  }
  return 1;
}

// Rows that share one pass over the weights.
int64_t row_set_size(const GemmArgs& args) {
  const int64_t fit = kRowSetBytes / (args.w.k * int64_t{sizeof(float)}) / kMaxRows * kMaxRows;
  return std::min(args.rows, std::max<int64_t>(fit, kMaxRows));
}

constexpr int64_t kPairColumns = 2 * kPanelColumns;  // gate and up

int64_t x_scratch_bytes(const GemmArgs& args) {
  return round_up(row_set_size(args) * args.w.k * int64_t{sizeof(float)}, 64);
}

int64_t gemm_scratch_bytes(const GemmArgs& args) {
  const bool pairs = args.store == GemmStore::kSiluMul;
  return x_scratch_bytes(args) +
         (pairs ? row_set_size(args) * kPairColumns * int64_t{sizeof(float)} : 0);
}

constexpr int64_t kXDepths = 16;  // of one row side by side in scratch

Vec load_f32(const float* from) { return hn::LoadU(F32(), from); }
Vec load_f32(const BFloat16* from) {
  const hn::Rebind<uint16_t, F32> d16;
  const U32 du;
  const auto bits = hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from)));
  return hn::BitCast(F32(), hn::ShiftLeft<16>(bits));
}

template <typename X>
void copy_row(const X* HWY_RESTRICT x, int64_t depth, int count, float* HWY_RESTRICT to) {
  for (int64_t k = 0; k < depth; k += kXDepths, to += count * kXDepths) {
    for (int64_t i = 0; i < kXDepths; i += kLanes) {
      hn::Store(load_f32(x + k + i), F32(), to + i);
    }
  }
}

// Copies rows [row, row + count) to `to` as fp32 [k / 16][count][16].
void copy_rows(const GemmArgs& args, int64_t row, int count, float* HWY_RESTRICT to) {
  for (int r = 0; r < count; ++r) {
    const int64_t begin = (row + r) * args.x_stride;
    if (args.w.type == ElementType::kF32) {
      copy_row(static_cast<const float*>(args.x) + begin, args.w.k, count, to + r * kXDepths);
    } else {
      copy_row(static_cast<const BFloat16*>(args.x) + begin, args.w.k, count, to + r * kXDepths);
    }
  }
}

// acc[r][v] += x of row r * w[v] for one depth.
template <int kRows, int kVectors>
HWY_INLINE void multiply_add(const float* HWY_RESTRICT x, const Vec (&w)[kVectors],
                             Vec (&acc)[kRows][kVectors]) {
  const F32 d;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const Vec value = hn::Set(d, x[r * kXDepths]);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = hn::MulAdd(value, w[v], acc[r][v]);
    }
  }
}

// The products of a row block with `kHalves` halves of a bf16 panel, from half `half` on.
template <int kRows, int kHalves>
HWY_INLINE void multiply_bf16(const float* HWY_RESTRICT x, const BFloat16* HWY_RESTRICT panel,
                              int64_t depth, int half, Vec (&acc)[kRows][kHalves * kHalfVectors]) {
  constexpr int kVectors = kHalves * kHalfVectors;
  const F32 d;
  const U32 du;
  const auto upper = hn::Set(du, 0xffff0000U);
  const BFloat16* HWY_RESTRICT block = panel + half * panel_layout::kTileElements;
  for (int64_t k = 0; k < depth; k += 32, block += 2 * panel_layout::kTileElements) {
    for (int pair = 0; pair < 16; ++pair, x += 2) {
      if (pair == kXDepths / 2) {
        x += (kRows - 1) * kXDepths;
      }
      hn::Vec<U32> raw[kVectors];
      Vec w[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        const BFloat16* at = block + v / kHalfVectors * panel_layout::kTileElements + pair * 32 +
                             v % kHalfVectors * kLanes * 2;
        if (v % kHalfVectors == 0) {
          hwy::Prefetch(at + kPrefetchBytes / 2);
        }
        raw[v] = hn::Load(du, reinterpret_cast<const uint32_t*>(at));
        w[v] = hn::BitCast(d, hn::ShiftLeft<16>(raw[v]));
      }
      multiply_add<kRows, kVectors>(x, w, acc);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        w[v] = hn::BitCast(d, hn::And(raw[v], upper));
      }
      multiply_add<kRows, kVectors>(x + 1, w, acc);
    }
    x += (kRows - 1) * kXDepths;
  }
}

// The same of an fp32 panel.
template <int kRows, int kHalves>
HWY_INLINE void multiply_f32(const float* HWY_RESTRICT x, const float* HWY_RESTRICT panel,
                             int64_t depth, int half, Vec (&acc)[kRows][kHalves * kHalfVectors]) {
  constexpr int kVectors = kHalves * kHalfVectors;
  const F32 d;
  const float* HWY_RESTRICT w_row = panel + half * 16;
  for (int64_t k = 0; k < depth; ++k, w_row += kPanelColumns, ++x) {
    if (k % kXDepths == 0 && k > 0) {
      x += (kRows - 1) * kXDepths;
    }
    Vec w[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      if (v % kHalfVectors == 0) {
        hwy::Prefetch(w_row + v * kLanes + kPrefetchBytes / 4);
      }
      w[v] = hn::Load(d, w_row + v * kLanes);
    }
    multiply_add<kRows, kVectors>(x, w, acc);
  }
}

// Where the results of a row block with a panel go.
struct Results {
  float* y = nullptr;  // first row, first column of the panel
  int64_t stride = 0;
};

template <int kRows, int kHalves>
HWY_NOINLINE void row_block(const GemmArgs& args, const float* x, const Results& results,
                            int64_t panel, int half) {
  constexpr int kVectors = kHalves * kHalfVectors;
  const F32 d;
  Vec acc[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = hn::Zero(d);
    }
  }
  const int64_t depth = args.w.k;
  const int64_t panel_elements = panel * kPanelColumns * depth;
  if (args.w.type == ElementType::kF32) {
    multiply_f32<kRows, kHalves>(x, static_cast<const float*>(args.w.data) + panel_elements, depth,
                                 half, acc);
  } else {
    multiply_bf16<kRows, kHalves>(x, static_cast<const BFloat16*>(args.w.data) + panel_elements,
                                  depth, half, acc);
  }
  const int64_t column = panel * kPanelColumns + half * 16;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    float* y = results.y + r * results.stride + half * 16;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      Vec sum = acc[r][v];
      if (args.bias != nullptr) {
        sum = hn::Add(sum, hn::LoadU(d, args.bias + column + v * kLanes));
      }
      if (args.store == GemmStore::kAdd) {
        sum = hn::Add(hn::LoadU(d, y + v * kLanes), sum);
      }
      hn::StoreU(sum, d, y + v * kLanes);
    }
  }
}

template <int kRows>
void row_block_panel(const GemmArgs& args, const float* x, const Results& results, int64_t panel) {
  if constexpr (kRows > kMaxRows) {
    return;  // never called: next_row_block gives at most kMaxRows
  } else if constexpr (kRows <= kWideRows) {
    row_block<kRows, 2>(args, x, results, panel, 0);
  } else {
    row_block<kRows, 1>(args, x, results, panel, 0);
    row_block<kRows, 1>(args, x, results, panel, 1);
  }
}

void row_block_of(int rows, const GemmArgs& args, const float* x, const Results& results,
                  int64_t panel) {
  switch (rows) {
    case 12:
      return row_block_panel<12>(args, x, results, panel);
    case 8:
      return row_block_panel<8>(args, x, results, panel);
    case 6:
      return row_block_panel<6>(args, x, results, panel);
    case 4:
      return row_block_panel<4>(args, x, results, panel);
    case 3:
      return row_block_panel<3>(args, x, results, panel);
    case 2:
      return row_block_panel<2>(args, x, results, panel);
    default:
      return row_block_panel<1>(args, x, results, panel);
  }
}

// Rows [begin, end) that are in scratch, with one panel; the first row's results go to `results`.
void multiply_set(const GemmArgs& args, const float* x, int64_t begin, int64_t end,
                  const Results& results, int64_t panel) {
  for (int64_t row = begin; row < end;) {
    const int rows = next_row_block(end - row);
    const Results own{results.y + (row - begin) * results.stride, results.stride};
    row_block_of(rows, args, x + (row - begin) * args.w.k, own, panel);
    row += rows;
  }
}

template <typename Out>
void silu_mul_row(const float* gate, const float* up, Out* y) {
  const F32 d;
  const Vec one = hn::Set(d, 1.0F);
  for (int64_t i = 0; i < kPanelColumns; i += kLanes) {
    const Vec g = hn::LoadU(d, gate + i);
    const Vec silu = hn::Div(g, hn::Add(one, vector_exp(hn::Neg(g))));
    store_vector(hn::Mul(silu, hn::LoadU(d, up + i)), y + i);
  }
}

// silu(gate) * up of rows [begin, end), whose products with both panels of the pair lie in `pair`.
void activate_set(const GemmArgs& args, const float* pair, int64_t begin, int64_t end,
                  int64_t panel) {
  for (int64_t row = begin; row < end; ++row, pair += kPairColumns) {
    const int64_t at = row * args.y_stride + panel / 2 * kPanelColumns;
    if (args.w.type == ElementType::kF32) {
      silu_mul_row(pair, pair + kPanelColumns, static_cast<float*>(args.activated) + at);
    } else {
      silu_mul_row(pair, pair + kPanelColumns, static_cast<BFloat16*>(args.activated) + at);
    }
  }
}

void gemm(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch) {
  float* x = static_cast<float*>(scratch);
  const int64_t depth = args.w.k;
  const int64_t set_size = args.rows > 0 ? row_set_size(args) : 1;
  for (int64_t set_begin = 0; set_begin < args.rows; set_begin += set_size) {
    const int64_t set_end = std::min(args.rows, set_begin + set_size);
    for (int64_t row = set_begin; row < set_end;) {
      const int rows = next_row_block(set_end - row);
      copy_rows(args, row, rows, x + (row - set_begin) * depth);
      row += rows;
    }
    if (args.store == GemmStore::kSiluMul) {
      auto* pair = reinterpret_cast<float*>(static_cast<char*>(scratch) + x_scratch_bytes(args));
      for (int64_t panel = panel_begin; panel < panel_end; panel += 2) {
        multiply_set(args, x, set_begin, set_end, {pair, kPairColumns}, panel);
        multiply_set(args, x, set_begin, set_end, {pair + kPanelColumns, kPairColumns}, panel + 1);
        activate_set(args, pair, set_begin, set_end, panel);
      }
      continue;
    }
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      float* y = args.y + set_begin * args.y_stride + panel * kPanelColumns;
      multiply_set(args, x, set_begin, set_end, {y, args.y_stride}, panel);
    }
  }
}

}  // namespace

void fill_gemm(Kernels& table) {
  table.gemm_scratch_bytes = gemm_scratch_bytes;
  table.gemm = gemm;
  table.pack = panel_layout::pack;
  table.unpack_row = panel_layout::unpack_row;
  table.embed = panel_layout::embed;
}

}  // namespace tandem::kernels::portable::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace tandem::kernels::portable {
TANDEM_PORTABLE_EXPORT(fill_gemm)
}
#endif
