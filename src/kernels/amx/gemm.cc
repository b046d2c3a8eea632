// Y = X W^T of bf16 on the matrix unit: 16 x 16 fp32 tiles, 32 depths a step.
//
// A panel is multiplied with units of up to 48 rows: six sum tiles, so that a step of 6 products
// takes 5 KB from the cache. Up to 48 rows the weights are one stream from memory, fetched just
// ahead. More rows are cut into sets whose x stays in the L2 cache while a group of panels passes
// by, and the work on a panel fetches the next one; further sets find the group's weights in the
// shared cache. An output takes its products in the order of depth in all of these, its sum is
// carried in fp32 between cuts of the depth, and the matrix unit treats rows one by one: so a row's
// result never depends on its company. For the same reason the last 16 rows may overlap those
// before them.
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
#endif

HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512bw,avx512dq,amx-tile,amx-bf16")
namespace tandem::kernels::amx {

namespace {

// Tiles 0-5: sums of up to three row groups x two column halves; 6: w; 7: x. With fewer groups 4
// holds x and 5 w, too.
void configure(int64_t rows) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = tile == 6 || (tile == 5 && rows < 16) ? 16 : static_cast<uint8_t>(rows);
    config.bytes_per_row[tile] = 64;
  }
  finish_config(&config);
  _tile_loadconfig(&config);
}

constexpr int64_t kGroupRows = 16;
constexpr int64_t kUnitGroups = 3;
constexpr int64_t kStepBytes = 2048;  // of a panel's weights: 32 depths, two tiles
constexpr int64_t kXStepBytes = 64;   // of a row of x
constexpr int64_t kAheadBytes = 2048;

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

// The x of a unit: row groups and the bytes from row to row.
struct UnitRows {
  const char* x[kUnitGroups] = {};
  int64_t stride = 0;
};

// Adds the products of `kGroups` row groups with `steps` depth steps of a panel to the sum tiles.
template <int kGroups, Source kSource>
void multiply(const UnitRows& rows, const char* w, int64_t steps, Fetch fetch) {
  int64_t at = 0;  // bytes into a row of x
  for (int64_t step = 0; step < steps; ++step, w += kStepBytes) {
    fetch_step<kSource>(fetch);
    _tile_loadd(6, w, 64);
    _tile_loadd(7, rows.x[0] + at, rows.stride);
    if constexpr (kGroups < 3) {  // with tiles left over all loads can be on their way at once
      _tile_loadd(5, w + kStepBytes / 2, 64);
      _tile_dpbf16ps(0, 7, 6);
      _tile_dpbf16ps(1, 7, 5);
      if constexpr (kGroups > 1) {
        _tile_loadd(4, rows.x[1] + at, rows.stride);
        _tile_dpbf16ps(2, 4, 6);
        _tile_dpbf16ps(3, 4, 5);
      }
    } else {
      _tile_dpbf16ps(0, 7, 6);
      _tile_loadd(7, rows.x[1] + at, rows.stride);
      _tile_dpbf16ps(2, 7, 6);
      _tile_loadd(7, rows.x[2] + at, rows.stride);
      _tile_dpbf16ps(4, 7, 6);
      _tile_loadd(6, w + kStepBytes / 2, 64);
      _tile_dpbf16ps(5, 7, 6);
      _tile_loadd(7, rows.x[1] + at, rows.stride);
      _tile_dpbf16ps(3, 7, 6);
      _tile_loadd(7, rows.x[0] + at, rows.stride);
      _tile_dpbf16ps(1, 7, 6);
    }
    at += kXStepBytes;
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
  const bool one_stream = groups <= kUnitGroups && chunks == 1;
  cut.group_panels = one_stream    ? args.w.panels()
                     : chunks == 1 ? kGroupPanels
                                   : kChunkedGroupPanels;
  cut.sum_panels = chunks == 1 ? args.panel_unit() : kChunkedGroupPanels;
  cut.c_bytes = cut.sum_panels * cut.set_groups * kGroupSums * 4;
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
        for (int64_t line = 0; line < ahead_bytes; line += 64) {
          _mm_prefetch(ahead + line, _MM_HINT_T0);
        }
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
  const int64_t units = divide_up(pass.groups, kUnitGroups);
  const bool one_unit = units == 1;
  const int64_t stride = args.x_stride * 2;
  Fetch fetch;
  fetch.at = one_unit ? pass.w + kAheadBytes : pass.next;
  fetch.lines = divide_up(kStepBytes / 64, units);
  fetch.y_stride = args.y_stride;
  int64_t done = 0;      // groups
  int64_t finished = 0;  // groups
  for (int64_t unit = 0; unit < units; ++unit) {
    const int64_t own = divide_up(pass.groups - done, units - unit);
    const int64_t group = pass.first_group + done;
    UnitRows rows;
    rows.stride = stride;
    for (int64_t i = 0; i < own; ++i) {
      rows.x[i] = pass.x + group_row(args, group + i) * stride;
    }
    float* c = pass.c + done * kGroupSums;
    fetch.y_rows = 0;
    if (pass.store && pass.gate == nullptr) {
      fetch.y = args.y + group * kGroupRows * args.y_stride + pass.column;
      fetch.y_rows = std::min(own * kGroupRows, args.rows - group * kGroupRows);
    }
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
    // One unit later: reading a tile's memory right after writing it would wait for the store.
    if (pass.store && unit > 0) {
      finish_groups(args, pass, pass.first_group + finished, pass.first_group + done, nullptr);
      finished = done;
    }
    done += own;
  }
  if (pass.store) {
    finish_groups(args, pass, pass.first_group + finished, pass.first_group + done,
                  one_unit ? pass.next + kAheadBytes : nullptr);
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

void multiply_panels(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch) {
  const Cut cut = cut_of(args);
  configure(std::min(args.rows, kGroupRows));
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
