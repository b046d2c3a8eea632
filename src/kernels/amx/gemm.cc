// Y = X W^T of bf16 on the matrix unit: 16 x 16 fp32 tiles, 32 depths a step. Quantised weights
// have a kernel of their own (quantized.cc).
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
#include "kernels/amx/row_groups.h"
#include "kernels/amx/tiles.h"
#include "kernels/avx512/result_rows.h"
#include "kernels/avx512bf16/avx512bf16.h"
#include "kernels/avx512vnni/avx512vnni.h"
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

constexpr int64_t kUnitGroups = 3;
constexpr int64_t kManyGroups = 9;
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

// How a product is cut.
struct Cut {
  int64_t set_groups = 0;    // row groups that share the L2 cache
  int64_t chunk_steps = 0;   // depth steps whose x for a set fits there
  int64_t group_panels = 0;  // panels that pass by before the next chunk of the depth, then set
  int64_t sum_panels = 0;    // panels whose sums are in scratch together
  // Floats of scratch, twice: sums as [panel][row group][16][32].
  [[nodiscard]] int64_t panel_sums() const { return set_groups * kGroupSums; }
  [[nodiscard]] int64_t sums() const { return sum_panels * panel_sums(); }
  [[nodiscard]] int64_t scratch_bytes() const { return 2 * sums() * 4; }
};

Cut cut_of(const GemmArgs& args) {
  constexpr int64_t kOneSetGroups = 16;  // too many for several sets, but better than two
  constexpr int64_t kSetGroups = 12;
  constexpr int64_t kChunkBytes = 1024 * 1024;
  constexpr int64_t kGroupPanels = 32;         // 4 MB of a depth of 2048
  constexpr int64_t kChunkedGroupPanels = 16;  // their sums share the L2 cache too
  constexpr int64_t kSums = 32 * 1024;         // 128 KB
  constexpr int64_t kMostSumPanels = 32;
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
  const int64_t fitting = kSums / cut.panel_sums() / 2 * 2;  // pairs: gate and up
  cut.sum_panels =
      chunks == 1 ? std::clamp<int64_t>(fitting, 2, kMostSumPanels) : kChunkedGroupPanels;
  return cut;
}

// Where sums are kept, and their way to y. The sums of several panels are written to y at once, row
// by row: a row of y is a page of its own, and a visit to each row for every panel's two lines
// slows the stream of weights down by a fifth. There are two sets of sums, so that the written one
// can also be a row of a panel at each step of the next one's products: vector work hides behind
// the matrix unit's. That pays where many rows compute; where weights stream it disturbs them.
class Results {
 public:
  Results(const GemmArgs& args, const Cut& cut, float* scratch)
      : args_(args), cut_(cut), sums_(scratch) {}
  [[nodiscard]] float* sums() const { return sums_ + half_ * cut_.sums(); }
  // The sums are those of the panels [begin, end) and of `groups` from `first_group` on. They go to
  // y now or beside the next products; sums() is the other set then.
  void complete(int64_t begin, int64_t end, int64_t first_group, int64_t groups) {
    finish();
    waiting_ = sums();
    half_ ^= 1;
    panel_begin_ = begin;
    panel_end_ = end;
    first_group_ = first_group;
    row_ = first_group * kGroupRows;
    row_end_ = std::min(args_.rows, (first_group + groups) * kGroupRows);
    begin_row();
    if (groups < kManyGroups) {
      finish();
    }
  }
  HWY_INLINE void step() {
    if (row_ < row_end_) {
      write_one();
    }
  }
  void finish() {
    while (row_ < row_end_) {
      write_one();
    }
  }

 private:
  void begin_row() {
    const int64_t group = row_ / kGroupRows;
    c_ = waiting_ + (group - first_group_) * kGroupSums +
         (row_ - group_row(args_, group)) * kPanelColumns;
    panel_ = panel_begin_;
  }
  HWY_INLINE void write_one() {
    if (args_.store == GemmStore::kSiluMul) {
      avx512::store_activated(args_, c_, c_ + cut_.panel_sums(), row_, panel_ / 2 * kPanelColumns);
    } else {
      avx512::store_row(args_, c_, row_, panel_ * kPanelColumns);
    }
    panel_ += args_.panel_unit();
    c_ += args_.panel_unit() * cut_.panel_sums();
    if (panel_ >= panel_end_ && ++row_ < row_end_) {
      begin_row();
    }
  }

  const GemmArgs& args_;
  const Cut& cut_;
  float* sums_;
  int64_t half_ = 0;
  // What waits to be written: from panel_ of row_ on.
  const float* waiting_ = nullptr;
  const float* c_ = nullptr;
  int64_t panel_begin_ = 0;
  int64_t panel_end_ = 0;
  int64_t first_group_ = 0;
  int64_t panel_ = 0;
  int64_t row_ = 0;
  int64_t row_end_ = 0;
};

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
void multiply(const UnitRows& rows, const char* w, int64_t steps, const char* next,
              Results& results) {
  constexpr bool kStream = kSource == Source::kMemory;
  constexpr int kLoads = kGroups == 3 ? 8 : 2 + kGroups;
  // A few lines before each load, never many: loads wait behind them.
  constexpr int kNext = kSource == Source::kCacheAhead ? kLinesAhead / kLoads : 0;
  int64_t at = 0;  // bytes into a row of x
  for (int64_t step = 0; step < steps; ++step, w += kStepBytes, at += kXStepBytes) {
    results.step();
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
                   const char* next, Results& results) {
  switch (groups) {
    case 1:
      return multiply<1, kSource>(rows, w, steps, next, results);
    case 2:
      return multiply<2, kSource>(rows, w, steps, next, results);
    default:
      return multiply<3, kSource>(rows, w, steps, next, results);
  }
}

// Adds the products of one row group with `steps` depth steps of `kPanels` panels to the sums.
template <int kPanels>
void multiply_panels_at_once(const UnitRows& rows, const char* w, int64_t steps) {
  const int64_t panel_bytes = steps * kStepBytes;
  int64_t at = 0;
  for (int64_t step = 0; step < steps; ++step, w += kStepBytes, at += kXStepBytes) {
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

constexpr int64_t kSumStride = kPanelColumns * 4;  // bytes
constexpr int64_t kPanelsAtOnce = 2;               // for one row group

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

// A chunk of the depth of one panel, for a set of rows.
struct PanelPass {
  const char* x = nullptr;     // row 0 of all, at this chunk
  const char* w = nullptr;     // the panel's chunk
  const char* next = nullptr;  // the weights of the pass after this one
  int64_t steps = 0;           // of depth
  bool first = false;          // chunk of the depth
  float* c = nullptr;          // the panel's sums
  int64_t first_group = 0;     // of the set
  int64_t groups = 0;
};

// How many of a set's groups the first unit has, which streams the weights. One or two stream best,
// and units of three compute best: with many of those computing counts more.
int64_t streaming_groups(int64_t groups) {
  if (groups >= kManyGroups) {
    return kUnitGroups;
  }
  if (groups == kUnitGroups) {
    return 2;
  }
  return groups % kUnitGroups == 0 ? 1 : groups % kUnitGroups;
}

void run_pass(const GemmArgs& args, const PanelPass& pass, Results& results) {
  const int64_t first = streaming_groups(pass.groups);
  const int64_t units = 1 + divide_up(pass.groups - first, kUnitGroups);
  UnitRows rows{.stride = args.x_stride * 2};
  int64_t done = 0;  // groups
  for (int64_t unit = 0; unit < units; ++unit) {
    const int64_t own = unit == 0 ? first : divide_up(pass.groups - done, units - unit);
    for (int64_t i = 0; i < own; ++i) {
      rows.x[i] = pass.x + group_row(args, pass.first_group + done + i) * rows.stride;
    }
    float* c = pass.c + done * kGroupSums;
    memory_barrier();
    if (pass.first) {
      clear_sums();
    } else {
      load_sums(c, own);
    }
    if (unit == 0) {
      multiply_unit<Source::kMemory>(own, rows, pass.w, pass.steps, nullptr, results);
    } else if (unit <= kStepBytes / 64 / kLinesAhead) {
      const char* next = pass.next + (unit - 1) * pass.steps * kLinesAhead * 64;
      multiply_unit<Source::kCacheAhead>(own, rows, pass.w, pass.steps, next, results);
    } else {
      multiply_unit<Source::kCache>(own, rows, pass.w, pass.steps, nullptr, results);
    }
    store_sums(c, own);
    memory_barrier();
    done += own;
  }
}

// A group of panels with all sets of rows.
void run_panels(const GemmArgs& args, const Cut& cut, int64_t begin, int64_t end,
                Results& results) {
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
      const bool last = step + pass.steps == steps;
      for (int64_t panel = begin; panel < end; ++panel) {
        pass.w = weights(panel, step);
        pass.next = panel + 1 < end                 ? weights(panel + 1, step)
                    : !last                         ? weights(begin, step + pass.steps)
                    : set + cut.set_groups < groups ? weights(begin, 0)
                    : end < args.w.panels()         ? weights(end, 0)
                                                    : pass.w;
        const int64_t place = (panel - begin) % cut.sum_panels;
        pass.c = results.sums() + place * cut.panel_sums();
        run_pass(args, pass, results);
        if (last && (panel + 1 == end || place + 1 == cut.sum_panels)) {
          results.complete(panel - place, panel + 1, pass.first_group, pass.groups);
        }
      }
    }
  }
}

// One row group, two panels at once.
void run_one_group(const GemmArgs& args, const Cut& cut, int64_t begin, int64_t end,
                   Results& results) {
  const int64_t steps = args.w.k / 32;
  const int64_t panel_bytes = steps * kStepBytes;
  const UnitRows rows{.x = {static_cast<const char*>(args.x)}, .stride = args.x_stride * 2};
  int64_t written = begin;
  for (int64_t panel = begin; panel < end; panel += kPanelsAtOnce) {
    const char* w = static_cast<const char*>(args.w.data) + panel * panel_bytes;
    const int64_t panels = std::min(kPanelsAtOnce, end - panel);
    memory_barrier();
    clear_sums();
    if (panels == 1) {
      multiply_panels_at_once<1>(rows, w, steps);
    } else {
      multiply_panels_at_once<2>(rows, w, steps);
    }
    // As if they were groups of rows.
    store_sums(results.sums() + (panel - written) * kGroupSums, panels);
    memory_barrier();
    const int64_t done = panel + panels;
    for (int64_t next = done; next < std::min(end, done + kPanelsAtOnce); ++next) {
      fetch(static_cast<const char*>(args.w.data) + next * panel_bytes, kAheadBytes);
    }
    if (done == end || done - written == cut.sum_panels) {
      results.complete(written, done, 0, 1);
      written = done;
    }
  }
}

void multiply_panels(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch) {
  const Cut cut = cut_of(args);
  Results results(args, cut, static_cast<float*>(scratch));
  configure(std::min(args.rows, kGroupRows));
  if (args.rows <= kGroupRows) {
    run_one_group(args, cut, panel_begin, panel_end, results);
  } else {
    for (int64_t panel = panel_begin; panel < panel_end; panel += cut.group_panels) {
      run_panels(args, cut, panel, std::min(panel_end, panel + cut.group_panels), results);
    }
  }
  results.finish();
}

int64_t gemm_scratch_bytes(const GemmArgs& args) {
  if (args.w.int8_products()) {
    return avx512vnni::gemm_scratch_bytes(args);
  }
  if (args.w.type == ElementType::kF32) {
    return portable::gemm_of(Isa::kAvx512).gemm_scratch_bytes(args);
  }
  if (args.w.quantized()) {
    return quantized_scratch_bytes(args);
  }
  if (args.rows <= 0) {
    return 0;
  }
  return cut_of(args).scratch_bytes();
}

void gemm(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch) {
  if (args.rows <= 0 || panel_begin >= panel_end) {
    return;
  }
  if (args.w.int8_products()) {
    avx512vnni::gemm(args, panel_begin, panel_end, scratch);
    return;
  }
  if (args.w.type == ElementType::kF32) {
    portable::gemm_of(Isa::kAvx512).gemm(args, panel_begin, panel_end, scratch);
    return;
  }
  if (args.w.quantized()) {
    quantized_gemm(args, panel_begin, panel_end, scratch);
    return;
  }
  multiply_panels(args, panel_begin, panel_end, scratch);
  _tile_release();
}

}  // namespace

void fill_gemm(Kernels& table) {
  table.gemm_scratch_bytes = gemm_scratch_bytes;
  table.prepared_bytes = avx512bf16::prepared_bytes;
  table.prepare = avx512bf16::prepare;
  table.gemm = gemm;
}

}  // namespace tandem::kernels::amx
HWY_POP_ATTRIBUTES
