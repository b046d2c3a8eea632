// Y = X W^T of bf16 on the matrix unit: 16 x 16 fp32 tiles, 32 depths a step.
//
// Up to 32 rows the weights are one stream from memory and x stays in the caches (`stream_panels`).
// More rows are cut into sets whose x, copied to scratch tile by tile, stays in the L2 cache while
// the weights pass by; each pass over a panel fetches the next one (`block_panels`). An output
// takes its products in the order of depth in both, its sum is carried in fp32 between cuts of the
// depth, and the matrix unit treats rows one by one: so a row's result never depends on its
// company.
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

// One row's results of a panel.
HWY_INLINE void prefetch_results(const float* y) {
  _mm_prefetch(reinterpret_cast<const char*>(y), _MM_HINT_T0);
  _mm_prefetch(reinterpret_cast<const char*>(y + 16), _MM_HINT_T0);
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

// The products of at most 32 rows with the panels, straight from x.
void stream_panels(const GemmArgs& args, int64_t panel_begin, int64_t panel_end) {
  alignas(64) float c[32 * 32];
  const int64_t rows = args.rows;
  const int64_t blocks = args.w.k / 32;
  const int64_t stride = args.x_stride * 2;
  const char* x = static_cast<const char*>(args.x);
  configure(std::min<int64_t>(rows, 16), std::max<int64_t>(rows - 16, 0));
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const char* w = static_cast<const char*>(args.w.data) + panel * blocks * 2 * kTileBytes;
    for (int64_t r = 0; r < rows; ++r) {
      prefetch_results(args.y + r * args.y_stride + panel * kPanelColumns);
    }
    memory_barrier();
    if (rows > 16) {
      multiply_two(x, x + 16 * stride, stride, w, blocks);
      _tile_stored(2, c + 16 * 32, 128);
      _tile_stored(3, c + 16 * 32 + 16, 128);
    } else {
      multiply_one(x, stride, w, blocks);
    }
    _tile_stored(0, c, 128);
    _tile_stored(1, c + 16, 128);
    memory_barrier();
    for (int64_t r = 0; r < rows; ++r) {
      store_row(args, c + r * 32, r, panel * kPanelColumns);
    }
  }
}

// How `block_panels` cuts a product. Row blocks are 32 rows; the last may hold 16 or fewer.
struct Cut {
  int64_t set_rows = 0;      // rows whose x is in scratch together, a multiple of 32
  int64_t chunk_blocks = 0;  // depth steps of 32 whose x for a set fits half of the L2 cache
  int64_t group_panels = 0;  // panels that pass by before the next chunk of the depth
  int64_t x_bytes = 0;       // scratch: x as [chunk][16 rows][depth step][tile]
  int64_t c_bytes = 0;       // scratch: sums as [panel of the group][row block][32][32]
};

Cut cut_of(const GemmArgs& args) {
  constexpr int64_t kSetRows = 256;
  constexpr int64_t kChunkBytes = 1024 * 1024;
  constexpr int64_t kGroupPanels = 16;
  const int64_t blocks = args.w.k / 32;
  Cut cut;
  cut.set_rows = std::min(kSetRows, round_up(args.rows, 32));
  cut.x_bytes = cut.set_rows * args.w.k * 2;
  const int64_t chunks = std::max<int64_t>(1, (cut.x_bytes + kChunkBytes - 1) / kChunkBytes);
  cut.chunk_blocks = (blocks + chunks - 1) / chunks;
  cut.group_panels = chunks == 1 ? args.w.panels() : kGroupPanels;
  cut.c_bytes = (chunks == 1 ? 1 : kGroupPanels) * cut.set_rows * kPanelColumns * 4;
  return cut;
}

// Copies rows [row, row + count) into scratch as tiles; missing rows of the last tile are zeros.
void copy_set(const GemmArgs& args, const Cut& cut, int64_t row, int64_t count, char* to) {
  const int64_t blocks = args.w.k / 32;
  const int64_t tile_rows = round_up(count, 16);
  for (int64_t r = 0; r < tile_rows; ++r) {
    const char* from = static_cast<const char*>(args.x) + (row + r) * args.x_stride * 2;
    char* tiles = to + r % 16 * 64;
    for (int64_t begin = 0; begin < blocks; begin += cut.chunk_blocks) {
      const int64_t chunk = std::min(cut.chunk_blocks, blocks - begin);
      char* at = tiles + (begin * tile_rows / 16 + r / 16 * chunk) * kTileBytes;
      for (int64_t b = 0; b < chunk; ++b) {
        const __m512i values =
            r < count ? _mm512_loadu_si512(from + (begin + b) * 64) : _mm512_setzero_si512();
        _mm512_store_si512(at + b * kTileBytes, values);
      }
    }
  }
}

// What a row block's pass fetches into the caches while the matrix unit works.
struct Fetch {
  const char* at = nullptr;  // weights that are needed next
  int64_t lines = 0;         // of them per depth step
  const float* y = nullptr;  // the block's results
  int64_t y_stride = 0;
  int64_t y_rows = 0;  // one per depth step; 0 before the last chunk of the depth
};

// One depth step's part of it.
HWY_INLINE void fetch_step(Fetch& fetch) {
  for (int64_t line = 0; line < fetch.lines; ++line, fetch.at += 64) {
    _mm_prefetch(fetch.at, _MM_HINT_T1);
  }
  if (fetch.y_rows > 0) {
    prefetch_results(fetch.y);
    fetch.y += fetch.y_stride;
    --fetch.y_rows;
  }
}

HWY_INLINE void prefetch_tile(const char* at) {
#pragma GCC unroll 16
  for (int64_t line = 0; line < kTileBytes; line += 64) {
    _mm_prefetch(at + line, _MM_HINT_T0);
  }
}

// Adds the products of two row groups (tiles at x0, x1) with a chunk of a panel to C[2][2].
void multiply_tiles_two(const char* x0, const char* x1, const char* w, int64_t blocks,
                        Fetch fetch) {
  for (int64_t b = 0; b < blocks; ++b) {
    _tile_loadd(4, x0, 64);
    _tile_loadd(6, w, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, w + kTileBytes, 64);
    prefetch_tile(x0 + kPrefetchBytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, x1, 64);
    prefetch_tile(x1 + kPrefetchBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    fetch_step(fetch);
    x0 += kTileBytes;
    x1 += kTileBytes;
    w += 2 * kTileBytes;
  }
}

void multiply_tiles_one(const char* x0, const char* w, int64_t blocks, Fetch fetch) {
  for (int64_t b = 0; b < blocks; ++b) {
    _tile_loadd(4, x0, 64);
    _tile_loadd(6, w, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, w + kTileBytes, 64);
    prefetch_tile(x0 + kPrefetchBytes);
    _tile_dpbf16ps(1, 4, 7);
    fetch_step(fetch);
    x0 += kTileBytes;
    w += 2 * kTileBytes;
  }
}

// C[rows / 16][2] from or to a row block's sums. Reading follows the writing after a whole group.
void load_sums(const float* c, int64_t rows) {
  _tile_loadd(0, c, 128);
  _tile_loadd(1, c + 16, 128);
  if (rows > 16) {
    _tile_loadd(2, c + 16 * 32, 128);
    _tile_loadd(3, c + 16 * 32 + 16, 128);
  }
}
void store_sums(float* c, int64_t rows) {
  _tile_stored(0, c, 128);
  _tile_stored(1, c + 16, 128);
  if (rows > 16) {
    _tile_stored(2, c + 16 * 32, 128);
    _tile_stored(3, c + 16 * 32 + 16, 128);
  }
}
void clear_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// A chunk of the depth of one panel, for all row blocks of a set.
struct PanelPass {
  const char* x = nullptr;     // the set's tiles of this chunk
  const char* w = nullptr;     // the panel's chunk
  const char* next = nullptr;  // the weights of the pass after this one
  int64_t blocks = 0;          // depth steps
  bool first = false;          // chunk of the depth
  bool last = false;
  float* c = nullptr;  // the panel's sums
  int64_t row = 0;     // of x and y
  int64_t rows = 0;
  int64_t column = 0;
};

// Sums of rows [begin, end) of the set to y.
void finish_rows(const GemmArgs& args, const PanelPass& pass, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    store_row(args, pass.c + r * 32, pass.row + r, pass.column);
  }
}

void run_pass(const GemmArgs& args, const PanelPass& pass) {
  const int64_t row_blocks = (pass.rows + 31) / 32;
  Fetch fetch;
  fetch.at = pass.next;
  fetch.lines = (32 + row_blocks - 1) / row_blocks;
  fetch.y_stride = args.y_stride;
  const char* x = pass.x;
  for (int64_t block = 0; block < row_blocks; ++block) {
    const int64_t rows = std::min<int64_t>(32, pass.rows - block * 32);
    float* c = pass.c + block * 32 * 32;
    fetch.y = args.y + (pass.row + block * 32) * args.y_stride + pass.column;
    fetch.y_rows = pass.last ? rows : 0;
    memory_barrier();
    if (pass.first) {
      clear_sums();
    } else {
      load_sums(c, rows);
    }
    if (rows > 16) {
      multiply_tiles_two(x, x + pass.blocks * kTileBytes, pass.w, pass.blocks, fetch);
    } else {
      multiply_tiles_one(x, pass.w, pass.blocks, fetch);
    }
    store_sums(c, rows);
    memory_barrier();
    fetch.at += fetch.lines * 64 * pass.blocks;
    x += 2 * pass.blocks * kTileBytes;
    // One block later: reading a tile's memory right after writing it would wait for the store.
    if (pass.last && block > 0) {
      finish_rows(args, pass, block * 32 - 32, block * 32);
    }
  }
  if (pass.last) {
    finish_rows(args, pass, row_blocks * 32 - 32, pass.rows);
  }
}

void block_panels(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch) {
  const Cut cut = cut_of(args);
  char* x = static_cast<char*>(scratch);
  auto* c = reinterpret_cast<float*>(x + cut.x_bytes);
  const int64_t blocks = args.w.k / 32;
  const auto* w = static_cast<const char*>(args.w.data);
  configure(16, 16);
  for (int64_t row = 0; row < args.rows; row += cut.set_rows) {
    const int64_t rows = std::min(cut.set_rows, args.rows - row);
    copy_set(args, cut, row, rows, x);
    for (int64_t group = panel_begin; group < panel_end; group += cut.group_panels) {
      const int64_t group_end = std::min(panel_end, group + cut.group_panels);
      for (int64_t begin = 0; begin < blocks; begin += cut.chunk_blocks) {
        PanelPass pass;
        pass.x = x + begin * round_up(rows, 16) / 16 * kTileBytes;
        pass.blocks = std::min(cut.chunk_blocks, blocks - begin);
        pass.first = begin == 0;
        pass.last = begin + pass.blocks == blocks;
        pass.row = row;
        pass.rows = rows;
        for (int64_t panel = group; panel < group_end; ++panel) {
          pass.w = w + (panel * blocks + begin) * 2 * kTileBytes;
          pass.next = panel + 1 < group_end ? pass.w + blocks * 2 * kTileBytes : pass.w;
          pass.c = pass.first && pass.last ? c : c + (panel - group) * cut.set_rows * kPanelColumns;
          pass.column = panel * kPanelColumns;
          run_pass(args, pass);
        }
      }
    }
  }
}

// For fp32 weights.
Kernels vector_kernels() {
  Kernels table;
  portable::fill_gemm(Isa::kAvx512, table);
  return table;
}

constexpr int64_t kStreamRows = 32;

int64_t gemm_scratch_bytes(const GemmArgs& args) {
  if (args.w.type == ElementType::kF32) {
    return vector_kernels().gemm_scratch_bytes(args);
  }
  if (args.rows <= kStreamRows) {
    return 0;
  }
  const Cut cut = cut_of(args);
  return cut.x_bytes + cut.c_bytes;
}

void gemm(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch) {
  if (args.rows <= 0 || panel_begin >= panel_end) {
    return;
  }
  if (args.w.type == ElementType::kF32) {
    vector_kernels().gemm(args, panel_begin, panel_end, scratch);
    return;
  }
  if (args.rows <= kStreamRows) {
    stream_panels(args, panel_begin, panel_end);
  } else {
    block_panels(args, panel_begin, panel_end, scratch);
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
