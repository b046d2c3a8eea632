// Y = X W^T of bf16 on the matrix unit: 16 x 16 fp32 tiles, 32 depths a step.
//
// Up to 16 rows take two panels at once: two streams from memory, and each step of x serves 64
// columns. More rows are cut into units of up to 48, six sum tiles, so that a step of 6 products
// takes 5 KB from the cache; the first unit streams a panel from memory, fetching just ahead, and
// the others find it in the L2 cache. Weights fetched further ahead would hold the fill buffers
// that tile loads from the L2 cache need: measured, that was never faster than fetching late.
// Many rows are cut into sets whose x stays in the L2 cache while a group of panels passes by;
// further sets find the group's weights in the shared cache. An output takes its products in the
// order of depth in all of these, its sum is carried in fp32 between cuts of the depth, and the
// matrix unit treats rows one by one: so a row's result never depends on its company. For the same
// reason the last 16 rows may overlap those before them.
//
// x is read where it lies. Rows a multiple of 4 KB apart fall into the same lines of the L1 cache,
// which is slow: callers keep them an odd number of lines apart.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/amx/amx.h"
#include "kernels/amx/tiles.h"
#include "kernels/exp.h"
#include "kernels/panel_layout.h"
#include "kernels/portable/portable.h"

// gcc 12 takes the operands that its own intrinsics leave undefined for uninitialized variables.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512bw,avx512dq,amx-tile,amx-bf16")
namespace tandem::kernels::amx {

namespace {

// Tiles 0-5: sums of up to three row groups x two column halves; 6: w; 7: x. With fewer groups 4
// holds x and 5 w, too; fewer rows than a group has only two panels at once, whose sums are 0-3.
void configure(int64_t rows) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    const bool holds_w = tile == 6 || (tile == 5 && rows < kTileRows);
    config.rows[tile] = static_cast<uint8_t>(holds_w ? kTileRows : rows);
    config.bytes_per_row[tile] = 64;
  }
  finish_config(&config);
  _tile_loadconfig(&config);
}

constexpr int64_t kGroupRows = kTileRows;
constexpr int64_t kUnitGroups = 3;
constexpr int64_t kStepBytes = 2 * kTileBytes;  // of a panel's weights: 32 depths, two tiles
constexpr int64_t kXStepBytes = 64;             // of a row of x
constexpr int64_t kAheadBytes = 1024;           // in a stream of weights

HWY_INLINE void fetch(const char* begin, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += 64) {
    _mm_prefetch(begin + line, _MM_HINT_T0);
  }
}

// Fetches what the stream needs after the tile `w`. Between two tile loads, not all at once: the
// loads would wait behind them.
HWY_INLINE void fetch_after(const char* w) {
#pragma GCC unroll 16
  for (int64_t line = 0; line < kTileBytes; line += 64) {
    _mm_prefetch(w + kAheadBytes + line, _MM_HINT_T0);
  }
}

// Results that are fetched into the cache before they are added to or written: a row a depth step.
struct FetchResults {
  const float* y = nullptr;
  int64_t stride = 0;
  int64_t rows = 0;     // 0 before the last chunk of the depth
  int64_t columns = 0;  // of each
};

HWY_INLINE void fetch_result(FetchResults& results) {
  if (results.rows > 0) {
    for (int64_t column = 0; column < results.columns; column += 16) {
      _mm_prefetch(reinterpret_cast<const char*>(results.y + column), _MM_HINT_T0);
    }
    results.y += results.stride;
    --results.rows;
  }
}

enum class Source {
  kMemory,      // the weights are fetched just ahead of their use, all in one stream
  kCacheAhead,  // an earlier unit has read them; meanwhile those of the next panel are fetched
  kCache,
};
constexpr int64_t kLinesAhead = 8;  // of the next panel, a depth step

template <int kLines>
HWY_INLINE void fetch_next(const char*& next) {
#pragma GCC unroll 4
  for (int line = 0; line < kLines; ++line, next += 64) {
    _mm_prefetch(next, _MM_HINT_T1);
  }
}

// The x of a unit: row groups and the bytes from row to row.
struct UnitRows {
  const char* x[kUnitGroups] = {};
  int64_t stride = 0;
};

// Adds the products of `kGroups` row groups with `steps` depth steps of a panel to the sum tiles.
template <int kGroups, Source kSource>
void multiply(const UnitRows& rows, const char* w, int64_t steps, FetchResults results,
              const char* next) {
  constexpr bool kStream = kSource == Source::kMemory;
  constexpr int kLoads = kGroups == 3 ? 8 : 2 + kGroups;
  // A few lines before each load, never many: loads wait behind them.
  constexpr int kNext = kSource == Source::kCacheAhead ? kLinesAhead / kLoads : 0;
  int64_t at = 0;  // bytes into a row of x
  for (int64_t step = 0; step < steps; ++step, w += kStepBytes, at += kXStepBytes) {
    fetch_result(results);
    if constexpr (kStream) {
      fetch_after(w);
    }
    fetch_next<kNext>(next);
    _tile_loadd(7, rows.x[0] + at, rows.stride);
    fetch_next<kNext>(next);
    _tile_loadd(6, w, 64);
    _tile_dpbf16ps(0, 7, 6);
    if constexpr (kGroups < 3) {  // with tiles left over all loads can be on their way at once
      if constexpr (kStream) {
        fetch_after(w + kTileBytes);
      }
      fetch_next<kNext>(next);
      _tile_loadd(5, w + kTileBytes, 64);
      _tile_dpbf16ps(1, 7, 5);
      if constexpr (kGroups > 1) {
        fetch_next<kNext>(next);
        _tile_loadd(4, rows.x[1] + at, rows.stride);
        _tile_dpbf16ps(2, 4, 6);
        _tile_dpbf16ps(3, 4, 5);
      }
    } else {
      fetch_next<kNext>(next);
      _tile_loadd(7, rows.x[1] + at, rows.stride);
      _tile_dpbf16ps(2, 7, 6);
      fetch_next<kNext>(next);
      _tile_loadd(7, rows.x[2] + at, rows.stride);
      _tile_dpbf16ps(4, 7, 6);
      if constexpr (kStream) {
        fetch_after(w + kTileBytes);
      }
      fetch_next<kNext>(next);
      _tile_loadd(6, w + kTileBytes, 64);
      _tile_dpbf16ps(5, 7, 6);
      fetch_next<kNext>(next);
      _tile_loadd(7, rows.x[1] + at, rows.stride);
      _tile_dpbf16ps(3, 7, 6);
      fetch_next<kNext>(next);
      _tile_loadd(7, rows.x[0] + at, rows.stride);
      _tile_dpbf16ps(1, 7, 6);
    }
  }
}

template <Source kSource>
void multiply_unit(int64_t groups, const UnitRows& rows, const char* w, int64_t steps,
                   const FetchResults& results, const char* next) {
  switch (groups) {
    case 1:
      return multiply<1, kSource>(rows, w, steps, results, next);
    case 2:
      return multiply<2, kSource>(rows, w, steps, results, next);
    default:
      return multiply<3, kSource>(rows, w, steps, results, next);
  }
}

// Adds the products of one row group with `steps` depth steps of `kPanels` panels to the sums.
template <int kPanels>
void multiply_panels_at_once(const UnitRows& rows, const char* w, int64_t steps,
                             FetchResults results) {
  const int64_t panel_bytes = steps * kStepBytes;
  int64_t at = 0;
  for (int64_t step = 0; step < steps; ++step, w += kStepBytes, at += kXStepBytes) {
    fetch_result(results);
    _tile_loadd(7, rows.x[0] + at, rows.stride);
    fetch_after(w);
    _tile_loadd(6, w, 64);
    _tile_dpbf16ps(0, 7, 6);
    fetch_after(w + kTileBytes);
    _tile_loadd(5, w + kTileBytes, 64);
    _tile_dpbf16ps(1, 7, 5);
    if constexpr (kPanels > 1) {
      const char* second = w + panel_bytes;
      fetch_after(second);
      _tile_loadd(6, second, 64);
      _tile_dpbf16ps(2, 7, 6);
      fetch_after(second + kTileBytes);
      _tile_loadd(5, second + kTileBytes, 64);
      _tile_dpbf16ps(3, 7, 5);
    }
  }
}

constexpr int64_t kSumStride = kPanelColumns * 4;           // bytes
constexpr int64_t kGroupSums = kGroupRows * kPanelColumns;  // floats
constexpr int64_t kPanelsAtOnce = 2;                        // for one row group

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

// As exp_scalar: the same operations in the same order.
__m512 exp_vector(__m512 x) {
  const __m512 bounded =
      _mm512_max_ps(_mm512_set1_ps(kExpLowest), _mm512_min_ps(_mm512_set1_ps(kExpHighest), x));
  const __m512 magic = _mm512_set1_ps(kExpRoundMagic);
  const __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(bounded, _mm512_set1_ps(kExpLog2e), magic), magic);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-kExpLn2High), bounded);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(-kExpLn2Low), r);
  __m512 p = _mm512_set1_ps(kExpC7);
  for (const float factor : {kExpC6, kExpC5, kExpC4, kExpC3, kExpC2, 1.0F, 1.0F}) {
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(factor));
  }
  const __m512i exponent = _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23);
  const __m512 y = _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), exponent));
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(kExpLowest), _CMP_NLT_UQ), y);
}

// Round to nearest even, NaN stays NaN, as f32_to_bf16.
__m256i to_bf16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i upper = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
  const __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, is_nan, quiet));
}

// silu(gate) * up for one row of a pair of panels.
void store_activated(const GemmArgs& args, const float* gate, const float* up, int64_t row,
                     int64_t column) {
  BFloat16* y = static_cast<BFloat16*>(args.activated) + row * args.y_stride + column;
  for (int64_t half = 0; half < 32; half += 16) {
    const __m512 g = _mm512_load_ps(gate + half);
    const __m512 negative = _mm512_sub_ps(_mm512_set1_ps(-0.0F), g);
    const __m512 silu = _mm512_div_ps(g, _mm512_add_ps(_mm512_set1_ps(1.0F), exp_vector(negative)));
    const __m256i value = to_bf16(_mm512_mul_ps(silu, _mm512_load_ps(up + half)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + half), value);
  }
}

// How a product is cut.
struct Cut {
  int64_t set_groups = 0;    // row groups that share the L2 cache
  int64_t chunk_steps = 0;   // depth steps whose x for a set fits there
  int64_t group_panels = 0;  // panels that pass by before the next chunk of the depth, then set
  int64_t sum_panels = 0;    // panels whose sums are in scratch together
  int64_t c_bytes = 0;       // scratch: sums as [panel][row group][16][32]
};

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

Cut cut_of(const GemmArgs& args) {
  constexpr int64_t kOneSetGroups = 16;  // too many for several sets, but better than two
  constexpr int64_t kSetGroups = 12;
  constexpr int64_t kChunkBytes = 1024 * 1024;
  constexpr int64_t kGroupPanels = 32;         // 4 MB of a depth of 2048
  constexpr int64_t kChunkedGroupPanels = 16;  // their sums share the L2 cache too
  const int64_t groups = divide_up(args.rows, kGroupRows);
  const int64_t steps = args.w.k / 32;
  Cut cut;
  cut.set_groups =
      groups <= kOneSetGroups ? groups : divide_up(groups, divide_up(groups, kSetGroups));
  const int64_t chunks = divide_up(cut.set_groups * kGroupRows * args.w.k * 2, kChunkBytes);
  cut.chunk_steps = divide_up(steps, chunks);
  cut.group_panels = cut.set_groups == groups && chunks == 1 ? args.w.panels()
                     : chunks == 1                           ? kGroupPanels
                                                             : kChunkedGroupPanels;
  cut.sum_panels = chunks == 1 ? args.panel_unit() : kChunkedGroupPanels;
  cut.c_bytes = std::max(cut.sum_panels * cut.set_groups, kPanelsAtOnce) * kGroupSums * 4;
  return cut;
}

// A chunk of the depth of one panel, for a set of rows.
struct PanelPass {
  const char* x = nullptr;     // row 0 of all, at this chunk
  const char* w = nullptr;     // the panel's chunk
  const char* next = nullptr;  // the weights of the pass after this one
  int64_t steps = 0;           // of depth
  bool first = false;          // chunk of the depth
  bool last = false;
  bool store = false;           // its sums, at the last chunk
  float* c = nullptr;           // the panel's sums
  const float* gate = nullptr;  // of up's panel: the sums of gate's
  int64_t column = 0;           // of y
  int64_t first_group = 0;      // of the set
  int64_t groups = 0;
};

// The first row of a group: the last one ends with the last row.
int64_t group_row(const GemmArgs& args, int64_t group) {
  return std::max<int64_t>(0, std::min(group * kGroupRows, args.rows - kGroupRows));
}

// Sums of the groups [begin, end) of all to y, each row once. `ahead`, unless null: the stream of
// weights goes on from there meanwhile.
void finish_groups(const GemmArgs& args, const PanelPass& pass, int64_t begin, int64_t end,
                   const char* ahead) {
  const int64_t ahead_bytes = pass.gate != nullptr ? 768 : 256;  // as memory gives in that time
  for (int64_t group = begin; group < end; ++group) {
    const int64_t from = group_row(args, group);
    const int64_t sums = (group - pass.first_group) * kGroupSums;
    const int64_t row_end = std::min(args.rows, (group + 1) * kGroupRows);
    for (int64_t row = group * kGroupRows; row < row_end; ++row) {
      const int64_t at = sums + (row - from) * kPanelColumns;
      if (ahead != nullptr) {
        fetch(ahead, ahead_bytes);
        ahead += ahead_bytes;
      }
      if (pass.gate != nullptr) {
        store_activated(args, pass.gate + at, pass.c + at, row, pass.column);
      } else {
        store_row(args, pass.c + at, row, pass.column);
      }
    }
  }
}

void run_pass(const GemmArgs& args, const PanelPass& pass) {
  // One group streams better than three, two do so well enough to be done with; where many units
  // follow, computing counts more than streaming.
  constexpr int64_t kManyGroups = 9;
  const int64_t first = pass.groups <= 2            ? pass.groups
                        : pass.groups < kManyGroups ? 1
                                                    : kUnitGroups;
  const int64_t units = 1 + divide_up(pass.groups - first, kUnitGroups);
  FetchResults results{.stride = args.y_stride, .columns = kPanelColumns};
  UnitRows rows{.stride = args.x_stride * 2};
  int64_t done = 0;      // groups
  int64_t finished = 0;  // groups
  for (int64_t unit = 0; unit < units; ++unit) {
    const int64_t own = unit == 0 ? first : divide_up(pass.groups - done, units - unit);
    const int64_t group = pass.first_group + done;
    for (int64_t i = 0; i < own; ++i) {
      rows.x[i] = pass.x + group_row(args, group + i) * rows.stride;
    }
    float* c = pass.c + done * kGroupSums;
    if (pass.store && pass.gate == nullptr) {
      results.y = args.y + group * kGroupRows * args.y_stride + pass.column;
      results.rows = std::min(own * kGroupRows, args.rows - group * kGroupRows);
    }
    memory_barrier();
    if (pass.first) {
      clear_sums();
    } else {
      load_sums(c, own);
    }
    if (unit == 0) {
      multiply_unit<Source::kMemory>(own, rows, pass.w, pass.steps, results, nullptr);
    } else if (unit <= kStepBytes / 64 / kLinesAhead) {
      const char* next = pass.next + (unit - 1) * pass.steps * kLinesAhead * 64;
      multiply_unit<Source::kCacheAhead>(own, rows, pass.w, pass.steps, results, next);
    } else {
      multiply_unit<Source::kCache>(own, rows, pass.w, pass.steps, results, nullptr);
    }
    store_sums(c, own);
    memory_barrier();
    // One unit later: reading a tile's memory right after writing it would wait for the store.
    if (pass.store && unit > 0) {
      finish_groups(args, pass, pass.first_group + finished, pass.first_group + done, nullptr);
      finished = done;
    }
    done += own;
  }
  if (pass.store) {
    finish_groups(args, pass, pass.first_group + finished, pass.first_group + done,
                  pass.next + (units == 1 ? kAheadBytes : 0));
  }
}

// A group of panels with all sets of rows.
void run_panels(const GemmArgs& args, const Cut& cut, int64_t begin, int64_t end, float* sums) {
  const int64_t steps = args.w.k / 32;
  const int64_t groups = divide_up(args.rows, kGroupRows);
  const auto weights = [&](int64_t panel, int64_t step) {
    return static_cast<const char*>(args.w.data) + (panel * steps + step) * kStepBytes;
  };
  PanelPass pass;
  for (int64_t set = 0; set < groups; set += cut.set_groups) {
    pass.first_group = set;
    pass.groups = std::min(cut.set_groups, groups - set);
    for (int64_t step = 0; step < steps; step += cut.chunk_steps) {
      pass.steps = std::min(cut.chunk_steps, steps - step);
      pass.x = static_cast<const char*>(args.x) + step * kXStepBytes;
      pass.first = step == 0;
      pass.last = step + pass.steps == steps;
      for (int64_t panel = begin; panel < end; ++panel) {
        pass.w = weights(panel, step);
        pass.next = panel + 1 < end                 ? weights(panel + 1, step)
                    : !pass.last                    ? weights(begin, step + pass.steps)
                    : set + cut.set_groups < groups ? weights(begin, 0)
                    : end < args.w.panels()         ? weights(end, 0)
                                                    : pass.w;
        pass.c = sums + (panel - begin) % cut.sum_panels * cut.set_groups * kGroupSums;
        pass.column = panel / args.panel_unit() * kPanelColumns;
        pass.store = pass.last;
        if (args.store == GemmStore::kSiluMul) {
          const bool is_gate = panel % 2 == 0;
          pass.gate = is_gate ? nullptr : pass.c - cut.set_groups * kGroupSums;
          pass.store = pass.last && !is_gate;
        }
        run_pass(args, pass);
      }
    }
  }
}

// One row group, two panels at once.
void run_one_group(const GemmArgs& args, int64_t begin, int64_t end, float* sums) {
  const int64_t steps = args.w.k / 32;
  const int64_t panel_bytes = steps * kStepBytes;
  const UnitRows rows{.x = {static_cast<const char*>(args.x)}, .stride = args.x_stride * 2};
  PanelPass pass;
  pass.groups = 1;
  for (int64_t panel = begin; panel < end; panel += kPanelsAtOnce) {
    const char* w = static_cast<const char*>(args.w.data) + panel * panel_bytes;
    const int64_t panels = std::min(kPanelsAtOnce, end - panel);
    const bool pair = args.store == GemmStore::kSiluMul;
    FetchResults results{.stride = args.y_stride};
    if (!pair) {
      results.y = args.y + panel * kPanelColumns;
      results.rows = args.rows;
      results.columns = panels * kPanelColumns;
    }
    memory_barrier();
    clear_sums();
    if (panels == 1) {
      multiply_panels_at_once<1>(rows, w, steps, results);
    } else {
      multiply_panels_at_once<2>(rows, w, steps, results);
    }
    store_sums(sums, panels);  // as if they were groups of rows
    memory_barrier();
    for (int64_t next = panel + panels; next < std::min(end, panel + 2 * kPanelsAtOnce); ++next) {
      fetch(static_cast<const char*>(args.w.data) + next * panel_bytes, kAheadBytes);
    }
    if (pair) {
      pass.gate = sums;
      pass.c = sums + kGroupSums;
      pass.column = panel / 2 * kPanelColumns;
      finish_groups(args, pass, 0, 1, nullptr);
      continue;
    }
    for (int64_t i = 0; i < panels; ++i) {
      pass.c = sums + i * kGroupSums;
      pass.column = (panel + i) * kPanelColumns;
      finish_groups(args, pass, 0, 1, nullptr);
    }
  }
}

void multiply_panels(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch) {
  const Cut cut = cut_of(args);
  configure(std::min(args.rows, kGroupRows));
  if (args.rows <= kGroupRows) {
    run_one_group(args, panel_begin, panel_end, static_cast<float*>(scratch));
    return;
  }
  for (int64_t panel = panel_begin; panel < panel_end; panel += cut.group_panels) {
    run_panels(args, cut, panel, std::min(panel_end, panel + cut.group_panels),
               static_cast<float*>(scratch));
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
  return cut_of(args).c_bytes;
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
