// Y = X W^T of bf16 on the matrix unit: 16 x 16 fp32 tiles, 32 depths a step.
//
// An output takes its products in the order of depth in every path below, and the matrix unit
// treats rows one by one, so a row's result never depends on its company.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/amx/amx.h"
#include "kernels/panel_layout.h"
#include "kernels/portable/portable.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512bw,avx512dq,amx-tile,amx-bf16")
namespace tandem::kernels::amx {

namespace {

// The first bytes that a tile configuration register takes.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

// Tiles 0-3: C of two row groups x two column halves; 4, 5: x; 6, 7: w.
void configure(int64_t rows0, int64_t rows1) {
  TileConfig config;
  const int64_t rows[8] = {rows0, rows0, rows1, rows1, rows0, rows1, 16, 16};
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = static_cast<uint8_t>(rows[tile]);
    config.bytes_per_row[tile] = rows[tile] == 0 ? 0 : 64;
  }
  _tile_loadconfig(&config);
}

constexpr int64_t kTileBytes = 1024;
constexpr int64_t kPrefetchBytes = 2048;

// Makes stores before it visible to tile loads after it, and the other way round: gcc does not see
// that tile instructions touch memory.
HWY_INLINE void memory_barrier() { asm volatile("" ::: "memory"); }

void prefetch_block(const char* at) {
#pragma GCC unroll 32
  for (int64_t line = 0; line < 2 * kTileBytes; line += 64) {
    _mm_prefetch(at + line, _MM_HINT_T0);
  }
}

// C[2][2] tiles = x rows (two groups) * one panel, over the whole depth.
void multiply_two(const char* x0, const char* x1, int64_t x_stride, const char* w, int64_t blocks) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t b = 0; b < blocks; ++b, x0 += 64, x1 += 64, w += 2 * kTileBytes) {
    prefetch_block(w + kPrefetchBytes);
    _tile_loadd(4, x0, x_stride);
    _tile_loadd(6, w, 64);
    _tile_loadd(7, w + kTileBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, x1, x_stride);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

void multiply_one(const char* x0, int64_t x_stride, const char* w, int64_t blocks) {
  _tile_zero(0);
  _tile_zero(1);
  for (int64_t b = 0; b < blocks; ++b, x0 += 64, w += 2 * kTileBytes) {
    prefetch_block(w + kPrefetchBytes);
    _tile_loadd(4, x0, x_stride);
    _tile_loadd(6, w, 64);
    _tile_loadd(7, w + kTileBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
}

// y (+)= c + bias for one row of a panel.
void store_row(const GemmArgs& args, const float* c, int64_t row, int64_t column) {
  float* y = args.y + row * args.y_stride + column;
  for (int64_t half = 0; half < 32; half += 16) {
    __m512 sum = _mm512_load_ps(c + half);
    if (args.bias != nullptr) {
      sum = _mm512_add_ps(sum, _mm512_loadu_ps(args.bias + column + half));
    }
    if (args.store == GemmStore::kAdd) {
      sum = _mm512_add_ps(_mm512_loadu_ps(y + half), sum);
    }
    _mm512_storeu_ps(y + half, sum);
  }
}

// Rows [row, row + count) x one panel; count <= 32, tiles configured for it.
void row_block(const GemmArgs& args, int64_t row, int64_t count, int64_t panel) {
  alignas(64) float c[32 * 32];
  const int64_t depth = args.w.k;
  const char* w = static_cast<const char*>(args.w.data) + panel * kPanelColumns * depth * 2;
  const char* x = static_cast<const char*>(args.x) + row * args.x_stride * 2;
  const int64_t stride = args.x_stride * 2;
  memory_barrier();
  if (count > 16) {
    multiply_two(x, x + 16 * stride, stride, w, depth / 32);
    _tile_stored(2, c + 16 * 32, 128);
    _tile_stored(3, c + 16 * 32 + 16, 128);
  } else {
    multiply_one(x, stride, w, depth / 32);
  }
  _tile_stored(0, c, 128);
  _tile_stored(1, c + 16, 128);
  memory_barrier();
  for (int64_t r = 0; r < count; ++r) {
    store_row(args, c + r * 32, row + r, panel * kPanelColumns);
  }
}

// For fp32 weights.
Kernels vector_kernels() {
  Kernels table;
  portable::fill_gemm(Isa::kAvx512, table);
  return table;
}

int64_t gemm_scratch_bytes(const GemmArgs& args) {
  if (args.w.type == ElementType::kF32) {
    return vector_kernels().gemm_scratch_bytes(args);
  }
  return 0;
}

void gemm(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch) {
  if (args.w.type == ElementType::kF32) {
    vector_kernels().gemm(args, panel_begin, panel_end, scratch);
    return;
  }
  const int64_t tail = args.rows % 32;
  const int64_t full_rows = args.rows - tail;
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    if (full_rows > 0 && (tail > 0 || panel == panel_begin)) {
      configure(16, 16);
    }
    for (int64_t row = 0; row < full_rows; row += 32) {
      row_block(args, row, 32, panel);
    }
    if (tail > 0) {
      if (full_rows > 0 || panel == panel_begin) {
        configure(std::min<int64_t>(tail, 16), std::max<int64_t>(tail - 16, 0));
      }
      row_block(args, full_rows, tail, panel);
    }
  }
  _tile_release();
}

}  // namespace

void fill_gemm(Kernels& table) {
  table.gemm_scratch_bytes = gemm_scratch_bytes;
  table.gemm = gemm;
}

}  // namespace tandem::kernels::amx
HWY_POP_ATTRIBUTES
