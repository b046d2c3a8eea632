// Y = X W^T of bf16 on the matrix unit: 16 x 16 fp32 tiles, 32 depths a step.
//
// Rows are copied to scratch tile by tile in sets whose x stays in the L2 cache while the weights
// pass by. A panel is multiplied with units of up to 48 rows: six sum tiles, so that a step of 6
// products takes 5 KB from the cache. Up to 48 rows the weights are one stream from memory, fetched
// just ahead; with more, the work on a panel fetches the next one. An output takes its products in
// the order of depth in all of these, its sum is carried in fp32 between cuts of the depth, and the
// matrix unit treats rows one by one: so a row's result never depends on its company.
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

// Tiles 0-5: sums of three row groups x two column halves; 6: w; 7: x.
void configure(int64_t rows) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = tile == 6 ? 16 : static_cast<uint8_t>(rows);
    config.bytes_per_row[tile] = 64;
  }
  _tile_loadconfig(&config);
}

constexpr int64_t kGroupRows = 16;
constexpr int64_t kUnitGroups = 3;
constexpr int64_t kUnitRows = kUnitGroups * kGroupRows;
constexpr int64_t kStepBytes = 2048;  // of a panel's weights: 32 depths, two tiles
constexpr int64_t kAheadBytes = 2048;

// Makes stores before it visible to tile loads after it, and the other way round: gcc does not see
// that tile instructions touch memory.
HWY_INLINE void memory_barrier() { asm volatile("" ::: "memory"); }

// What the work on a unit fetches into the caches meanwhile.
struct Fetch {
  const char* at = nullptr;  // weights that are needed next
  int64_t lines = 0;         // of them per depth step
  const float* y = nullptr;  // the unit's results
  int64_t y_stride = 0;
  int64_t y_rows = 0;  // one per depth step; 0 before the last chunk of the depth
};

enum class Source {
  kMemory,  // the weights come just ahead of their use, all in one stream
  kCache,   // they were fetched by the work before
};

template <Source kSource>
HWY_INLINE void fetch_step(Fetch& fetch) {
  if constexpr (kSource == Source::kMemory) {
#pragma GCC unroll 32
    for (int64_t line = 0; line < kStepBytes; line += 64) {
      _mm_prefetch(fetch.at + line, _MM_HINT_T0);
    }
    fetch.at += kStepBytes;
  } else {
    for (int64_t line = 0; line < fetch.lines; ++line, fetch.at += 64) {
      _mm_prefetch(fetch.at, _MM_HINT_T1);
    }
  }
  if (fetch.y_rows > 0) {
    _mm_prefetch(reinterpret_cast<const char*>(fetch.y), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(fetch.y + 16), _MM_HINT_T0);
    fetch.y += fetch.y_stride;
    --fetch.y_rows;
  }
}

// The x of a unit in scratch.
struct UnitRows {
  const char* x = nullptr;
  int64_t group_bytes = 0;  // from a row group to the next
  int64_t step_bytes = 0;   // from a depth step to the next: a tile's
};

// Adds the products of `kGroups` row groups with `steps` depth steps of a panel to the sum tiles.
template <int kGroups, Source kSource>
void multiply(const UnitRows& rows, const char* w, int64_t steps, Fetch fetch) {
  const char* x0 = rows.x;
  const char* x1 = x0 + rows.group_bytes;
  const char* x2 = x1 + rows.group_bytes;
  for (int64_t step = 0; step < steps; ++step, w += kStepBytes) {
    fetch_step<kSource>(fetch);
    _tile_loadd(6, w, 64);
    _tile_loadd(7, x0, 64);
    _tile_dpbf16ps(0, 7, 6);
    if constexpr (kGroups > 1) {
      _tile_loadd(7, x1, 64);
      _tile_dpbf16ps(2, 7, 6);
    }
    if constexpr (kGroups > 2) {
      _tile_loadd(7, x2, 64);
      _tile_dpbf16ps(4, 7, 6);
    }
    _tile_loadd(6, w + kStepBytes / 2, 64);
    if constexpr (kGroups > 2) {
      _tile_dpbf16ps(5, 7, 6);
      _tile_loadd(7, x1, 64);
    }
    if constexpr (kGroups > 1) {
      _tile_dpbf16ps(3, 7, 6);
      _tile_loadd(7, x0, 64);
    }
    _tile_dpbf16ps(1, 7, 6);
    x0 += rows.step_bytes;
    x1 += rows.step_bytes;
    x2 += rows.step_bytes;
  }
}

template <Source kSource>
void multiply_unit(int64_t groups, const UnitRows& rows, const char* w, int64_t steps,
                   const Fetch& fetch) {
  switch (groups) {
    case 1:
      return multiply<1, kSource>(rows, w, steps, fetch);
    case 2:
      return multiply<2, kSource>(rows, w, steps, fetch);
    default:
      return multiply<3, kSource>(rows, w, steps, fetch);
  }
}

constexpr int64_t kSumStride = kPanelColumns * 4;           // bytes
constexpr int64_t kGroupSums = kGroupRows * kPanelColumns;  // floats

void clear_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
}
void load_sums(const float* c, int64_t groups) {
  _tile_loadd(0, c, kSumStride);
  _tile_loadd(1, c + 16, kSumStride);
  if (groups > 1) {
    _tile_loadd(2, c + kGroupSums, kSumStride);
    _tile_loadd(3, c + kGroupSums + 16, kSumStride);
  }
  if (groups > 2) {
    _tile_loadd(4, c + 2 * kGroupSums, kSumStride);
    _tile_loadd(5, c + 2 * kGroupSums + 16, kSumStride);
  }
}
void store_sums(float* c, int64_t groups) {
  _tile_stored(0, c, kSumStride);
  _tile_stored(1, c + 16, kSumStride);
  if (groups > 1) {
    _tile_stored(2, c + kGroupSums, kSumStride);
    _tile_stored(3, c + kGroupSums + 16, kSumStride);
  }
  if (groups > 2) {
    _tile_stored(4, c + 2 * kGroupSums, kSumStride);
    _tile_stored(5, c + 2 * kGroupSums + 16, kSumStride);
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

// How a product is cut.
struct Cut {
  int64_t set_groups = 0;    // row groups whose x is in scratch together
  int64_t tile_rows = 0;     // rows of an x tile: 16, fewer where all rows are fewer
  int64_t chunk_steps = 0;   // depth steps whose x for a set fits half of the L2 cache
  int64_t group_panels = 0;  // panels that pass by before the next chunk of the depth
  int64_t sum_panels = 0;    // panels whose sums are in scratch together
  int64_t x_bytes = 0;       // scratch: x as [chunk][row group][depth step][tile]
  int64_t c_bytes = 0;       // scratch: sums as [panel][row group][16][32]
};

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

Cut cut_of(const GemmArgs& args) {
  constexpr int64_t kSetGroups = 16;
  constexpr int64_t kChunkBytes = 1024 * 1024;
  constexpr int64_t kGroupPanels = 16;
  const int64_t groups = divide_up(args.rows, kGroupRows);
  const int64_t steps = args.w.k / 32;
  Cut cut;
  cut.set_groups = divide_up(groups, divide_up(groups, kSetGroups));
  cut.tile_rows = std::min(args.rows, kGroupRows);
  cut.x_bytes = cut.set_groups * cut.tile_rows * args.w.k * 2;
  const int64_t chunks = divide_up(cut.x_bytes, kChunkBytes);
  cut.chunk_steps = divide_up(steps, chunks);
  cut.group_panels = chunks == 1 ? args.w.panels() : kGroupPanels;
  cut.sum_panels = chunks == 1 ? 1 : kGroupPanels;
  cut.c_bytes = cut.sum_panels * cut.set_groups * kGroupSums * 4;
  return cut;
}

// Copies rows [row, row + count) into scratch as tiles; missing rows of the last tile are zeros.
void copy_set(const GemmArgs& args, const Cut& cut, int64_t row, int64_t count, char* to) {
  const int64_t steps = args.w.k / 32;
  const int64_t groups = divide_up(count, cut.tile_rows);
  const int64_t tile_bytes = cut.tile_rows * 64;
  for (int64_t r = 0; r < groups * cut.tile_rows; ++r) {
    const char* from = static_cast<const char*>(args.x) + (row + r) * args.x_stride * 2;
    char* tiles = to + r % cut.tile_rows * 64;
    for (int64_t begin = 0; begin < steps; begin += cut.chunk_steps) {
      const int64_t chunk = std::min(cut.chunk_steps, steps - begin);
      char* at = tiles + (begin * groups + r / cut.tile_rows * chunk) * tile_bytes;
      for (int64_t step = 0; step < chunk; ++step) {
        const __m512i values =
            r < count ? _mm512_loadu_si512(from + (begin + step) * 64) : _mm512_setzero_si512();
        _mm512_store_si512(at + step * tile_bytes, values);
      }
    }
  }
}

// A chunk of the depth of one panel, for all row groups of a set.
struct PanelPass {
  UnitRows x;                  // the set's tiles of this chunk
  const char* w = nullptr;     // the panel's chunk
  const char* next = nullptr;  // the weights of the pass after this one
  int64_t steps = 0;           // of depth
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
    store_row(args, pass.c + r * kPanelColumns, pass.row + r, pass.column);
  }
}

void run_pass(const GemmArgs& args, const PanelPass& pass) {
  const int64_t groups = divide_up(pass.rows, kGroupRows);
  const int64_t units = divide_up(groups, kUnitGroups);
  const bool one_unit = units == 1;
  Fetch fetch;
  fetch.at = one_unit ? pass.w + kAheadBytes : pass.next;
  fetch.lines = divide_up(kStepBytes / 64, units);
  fetch.y_stride = args.y_stride;
  UnitRows rows = pass.x;
  int64_t done = 0;      // row groups
  int64_t finished = 0;  // rows
  for (int64_t unit = 0; unit < units; ++unit) {
    const int64_t own = divide_up(groups - done, units - unit);
    float* c = pass.c + done * kGroupSums;
    const int64_t row = done * kGroupRows;
    fetch.y = args.y + (pass.row + row) * args.y_stride + pass.column;
    fetch.y_rows = pass.last ? std::min(own * kGroupRows, pass.rows - row) : 0;
    memory_barrier();
    if (pass.first) {
      clear_sums();
    } else {
      load_sums(c, own);
    }
    if (one_unit) {
      multiply_unit<Source::kMemory>(own, rows, pass.w, pass.steps, fetch);
    } else {
      multiply_unit<Source::kCache>(own, rows, pass.w, pass.steps, fetch);
    }
    store_sums(c, own);
    memory_barrier();
    fetch.at += fetch.lines * 64 * pass.steps;
    rows.x += own * rows.group_bytes;
    done += own;
    // One unit later: reading a tile's memory right after writing it would wait for the store.
    if (pass.last && unit > 0) {
      finish_rows(args, pass, finished, row);
      finished = row;
    }
  }
  if (pass.last) {
    finish_rows(args, pass, finished, pass.rows);
  }
}

// The panels with one set of rows.
struct SetPass {
  const Cut& cut;
  const char* x = nullptr;
  float* c = nullptr;
  int64_t row = 0;
  int64_t rows = 0;
};

void run_set(const GemmArgs& args, const SetPass& set, int64_t panel_begin, int64_t panel_end) {
  const Cut& cut = set.cut;
  const int64_t steps = args.w.k / 32;
  const int64_t groups = divide_up(set.rows, cut.tile_rows);
  const int64_t tile_bytes = cut.tile_rows * 64;
  const auto weights = [&](int64_t panel, int64_t step) {
    return static_cast<const char*>(args.w.data) + (panel * steps + step) * kStepBytes;
  };
  PanelPass pass;
  pass.row = set.row;
  pass.rows = set.rows;
  for (int64_t group = panel_begin; group < panel_end; group += cut.group_panels) {
    const int64_t group_end = std::min(panel_end, group + cut.group_panels);
    for (int64_t begin = 0; begin < steps; begin += cut.chunk_steps) {
      pass.steps = std::min(cut.chunk_steps, steps - begin);
      pass.x = {set.x + begin * groups * tile_bytes, pass.steps * tile_bytes, tile_bytes};
      pass.first = begin == 0;
      pass.last = begin + pass.steps == steps;
      for (int64_t panel = group; panel < group_end; ++panel) {
        pass.w = weights(panel, begin);
        pass.next = panel + 1 < group_end   ? weights(panel + 1, begin)
                    : !pass.last            ? weights(group, begin + pass.steps)
                    : group_end < panel_end ? weights(group_end, 0)
                                            : pass.w;
        pass.c = set.c + (panel - group) % cut.sum_panels * cut.set_groups * kGroupSums;
        pass.column = panel * kPanelColumns;
        run_pass(args, pass);
      }
    }
  }
}

void multiply_panels(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch) {
  const Cut cut = cut_of(args);
  char* x = static_cast<char*>(scratch);
  auto* c = reinterpret_cast<float*>(x + cut.x_bytes);
  configure(cut.tile_rows);
  const int64_t set_rows = cut.set_groups * kGroupRows;
  for (int64_t row = 0; row < args.rows; row += set_rows) {
    const int64_t rows = std::min(set_rows, args.rows - row);
    copy_set(args, cut, row, rows, x);
    run_set(args, {cut, x, c, row, rows}, panel_begin, panel_end);
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
  if (args.rows <= 0) {
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
  multiply_panels(args, panel_begin, panel_end, scratch);
  _tile_release();
}

}  // namespace

void fill_gemm(Kernels& table) {
  table.gemm_scratch_bytes = gemm_scratch_bytes;
  table.gemm = gemm;
}

}  // namespace tandem::kernels::amx
HWY_POP_ATTRIBUTES
