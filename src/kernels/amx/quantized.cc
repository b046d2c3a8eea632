// Y = X W^T with quantised weights on the matrix unit.
//
// A step of a panel is 32 depths of 32 columns that share a scale per column. Its integers are
// exact in bf16: a piece of steps is unpacked to scratch, where all rows multiply it. A product of
// tiles covers the depths of one step, so its sums leave their tiles after every step; vector units
// scale them and add them to the results, while the matrix unit computes the next step. Up to 32
// rows are multiplied together: four sum tiles hide the unit's latency.
//
// For 16 rows and a step of a panel two tile products take 32 cycles. Their sums are stored by 32
// rows of tiles and added by 32 vectors, each of which is stored as well: 64 cycles at a store of
// 64 bytes a cycle. bf16 weights take half of that, fp32 vectors 1,024 multiply-adds.
//
// Steps are added in the order of depth, and rows do not meet: so a row's result never depends on
// its company. For the same reason the last 16 rows may overlap the rows before.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/amx/amx.h"
#include "kernels/amx/row_groups.h"
#include "kernels/amx/tiles.h"
#include "kernels/avx512/result_rows.h"
#include "kernels/avx512bf16/quantized_steps.h"
#include "kernels/flush_denormals.h"
#include "kernels/panel_layout.h"
#include "kernels/quantize.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,amx-tile,amx-bf16")
namespace tandem::kernels::amx {

namespace {

using avx512bf16::kHalfBytes;
using avx512bf16::kPieceSteps;
using avx512bf16::kStepBytes;
using avx512bf16::Scales;
using avx512bf16::Unpacked;

constexpr int64_t kBlockGroups = 2;                // row groups in one call of multiply_block
constexpr int64_t kSumStride = kPanelColumns * 4;  // bytes from row to row of a step's sums
constexpr int64_t kXStepBytes = 64;                // a row of x in one step
constexpr int64_t kLine = 64;                      // a cache line

// Tiles 0-3: sums of two row groups x two column halves; 4 and 5: x of the groups; 6 and 7: w.
void configure(int64_t rows) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = static_cast<uint8_t>(tile >= 6 ? kTileRows : rows);
    config.bytes_per_row[tile] = kTileRowBytes;
  }
  finish_config(&config);
  _tile_loadconfig(&config);
}

// How a product is cut.
struct Cut {
  int64_t set_groups = 0;       // row groups of a set: their x for a chunk shares the L2 cache
  int64_t chunk_steps = 0;      // steps of a chunk of the depth, whole pieces
  int64_t panels_together = 0;  // panels before the next chunk, then the next set
  int64_t result_panels = 0;    // panels whose results are in scratch at a time
  [[nodiscard]] int64_t panel_results() const { return set_groups * kGroupSums; }  // floats
};

Cut cut_of(const GemmArgs& args) {
  constexpr int64_t kSetGroups = 16;
  constexpr int64_t kChunkBytes = 1024 * 1024;
  constexpr int64_t kPanelsTogether = 16;
  const int64_t groups = divide_up(args.rows, kGroupRows);
  const int64_t steps = args.w.k / 32;
  Cut cut;
  cut.set_groups = divide_up(groups, divide_up(groups, kSetGroups));
  const int64_t chunks = divide_up(cut.set_groups * kGroupRows * args.w.k * 2, kChunkBytes);
  cut.chunk_steps = divide_up(divide_up(steps, chunks), kPieceSteps) * kPieceSteps;
  const bool whole = cut.chunk_steps >= steps;
  cut.panels_together = whole && cut.set_groups == groups ? args.w.panels() : kPanelsTogether;
  cut.result_panels = whole ? args.panel_unit() : kPanelsTogether;
  return cut;
}

// Whether a call must sum x in its scratch, for each set of rows.
bool sums_x(const GemmArgs& args) {
  return has_minimum(args.w.quantization) && args.prepared == nullptr;
}

// Scratch of a call: the sums of a step, an unpacked piece, results as [panel][row group][16][32],
// and, if sums_x, the sums of x for a set as [row][step].
struct Scratch {
  Scratch(const GemmArgs& args, const Cut& cut, void* memory)
      : step_sums(static_cast<float*>(memory)),
        unpacked(reinterpret_cast<Unpacked*>(step_sums + kBlockGroups * kGroupSums)),
        results(reinterpret_cast<float*>(unpacked + 1)),
        x_sums(sums_x(args) ? results + cut.result_panels * cut.panel_results() : nullptr) {}
  static int64_t bytes(const GemmArgs& args, const Cut& cut) {
    const int64_t sums =
        sums_x(args) ? cut.set_groups * kGroupRows * (args.w.k / kQuantizedGroup) : 0;
    return (kBlockGroups * kGroupSums + cut.result_panels * cut.panel_results() + sums) *
               int64_t{sizeof(float)} +
           int64_t{sizeof(Unpacked)};
  }
  float* step_sums;
  Unpacked* unpacked;
  float* results;
  float* x_sums;
};

// The next piece's weights, fetched while this piece is multiplied: some lines at each step.
struct Ahead {
  const char* next = nullptr;
  const char* end = nullptr;
  int64_t lines = 0;  // at each step
  HWY_INLINE void fetch() {
    for (int64_t line = 0; line < lines && next < end; ++line, next += kLine) {
      _mm_prefetch(next, _MM_HINT_T0);
    }
  }
};

// A piece of a panel with a block of rows.
struct Block {
  const char* x[kBlockGroups] = {};  // the first row of each group, at the piece's first step
  int64_t stride = 0;                // bytes from row to row
  int64_t rows = 0;                  // in each group
  const Unpacked* w = nullptr;
  int64_t steps = 0;
  bool first = false;                      // the depth's first piece: results begin with zero
  const char* scales = nullptr;            // fp16, at the first step
  int64_t scale_stride = 0;                // bytes from step to step
  const float* x_sums[kBlockGroups] = {};  // sums of the rows in x; null without minima
  int64_t x_sums_stride = 0;               // floats from row to row
  float* results = nullptr;
};

template <int kGroups>
HWY_INLINE void multiply_step(const Block& block, int64_t step) {
  const char* w = block.w->w + step * kStepBytes;
  const int64_t at = step * kXStepBytes;
  _tile_loadd(4, block.x[0] + at, block.stride);
  _tile_loadd(6, w, kTileRowBytes);
  _tile_zero(0);
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(7, w + kHalfBytes, kTileRowBytes);
  _tile_zero(1);
  _tile_dpbf16ps(1, 4, 7);
  if constexpr (kGroups > 1) {
    _tile_loadd(5, block.x[1] + at, block.stride);
    _tile_zero(2);
    _tile_dpbf16ps(2, 5, 6);
    _tile_zero(3);
    _tile_dpbf16ps(3, 5, 7);
  }
}

template <int kGroups>
HWY_INLINE void store_step(float* sums) {
  memory_barrier();
  _tile_stored(0, sums, kSumStride);
  _tile_stored(1, sums + 16, kSumStride);
  if constexpr (kGroups > 1) {
    _tile_stored(2, sums + kGroupSums, kSumStride);
    _tile_stored(3, sums + kGroupSums + 16, kSumStride);
  }
  memory_barrier();
}

// results (+)= scale * sums (+ minimum * sum of x)
template <int kGroups>
HWY_INLINE void add_step(const Block& block, int64_t step, const float* sums) {
  const bool minima = block.x_sums[0] != nullptr;
  const bool first = block.first && step == 0;
  const char* scales = block.scales + step * block.scale_stride;
  const Scales left = avx512bf16::load_scales(scales, minima);
  const Scales right = avx512bf16::load_scales(scales + 32, minima);
  for (int64_t group = 0; group < kGroups; ++group) {
    const float* from = sums + group * kGroupSums;
    float* to = block.results + group * kGroupSums;
    const float* x_sums = minima ? block.x_sums[group] + step : nullptr;
    for (int64_t row = 0; row < block.rows; ++row, from += kPanelColumns, to += kPanelColumns) {
      const __m512 left_sums = _mm512_load_ps(from);
      const __m512 right_sums = _mm512_load_ps(from + 16);
      if (minima) {
        const float x_sum = x_sums[row * block.x_sums_stride];
        avx512bf16::add_scaled(left, first, left_sums, x_sum, to);
        avx512bf16::add_scaled(right, first, right_sums, x_sum, to + 16);
      } else {
        avx512bf16::add_scaled(left, first, left_sums, to);
        avx512bf16::add_scaled(right, first, right_sums, to + 16);
      }
    }
  }
}

// Vectors add the sums of a step after the tile products of the next have begun.
template <int kGroups>
void multiply_block(const Block& block, float* sums, Ahead& ahead) {
  memory_barrier();
  multiply_step<kGroups>(block, 0);
  store_step<kGroups>(sums);
  for (int64_t step = 1; step < block.steps; ++step) {
    ahead.fetch();
    multiply_step<kGroups>(block, step);
    add_step<kGroups>(block, step - 1, sums);
    store_step<kGroups>(sums);
  }
  ahead.fetch();
  add_step<kGroups>(block, block.steps - 1, sums);
}

const char* step_of(const GemmArgs& args, int64_t panel, int64_t step) {
  return static_cast<const char*>(args.w.data) +
         (panel * (args.w.k / 32) + step) * panel_layout::step_bytes(args.w.quantization);
}

// A chunk of the depth of one panel, for a set of rows.
struct PanelPass {
  int64_t first_group = 0;  // the set's
  int64_t groups = 0;
  int64_t first_step = 0;  // the chunk's
  int64_t steps = 0;
  const char* w = nullptr;     // the panel, at this chunk
  const char* next = nullptr;  // the weights of the following pass
  int64_t next_steps = 0;      // steps of that pass's first piece
  float* results = nullptr;    // the panel's
  // Sums of x as [row][step] from row x_sums_row on; null without minima.
  const float* x_sums = nullptr;
  int64_t x_sums_row = 0;
};

void run_pass(const GemmArgs& args, const PanelPass& pass, const Scratch& scratch) {
  const Quantization quantization = args.w.quantization;
  const int64_t bytes = panel_layout::step_bytes(quantization);
  const int64_t blocks = divide_up(pass.groups, kBlockGroups);
  Block block{.stride = args.x_stride * 2,
              .rows = std::min(args.rows, kGroupRows),
              .w = scratch.unpacked,
              .scale_stride = bytes,
              .x_sums_stride = args.w.k / kQuantizedGroup};
  for (int64_t step = 0; step < pass.steps; step += kPieceSteps) {
    block.steps = std::min(kPieceSteps, pass.steps - step);
    block.first = pass.first_step + step == 0;
    const char* w = pass.w + step * bytes;
    avx512bf16::unpack(quantization, w, block.steps, *scratch.unpacked);
    block.scales = w + panel_layout::step_value_bytes(quantization);
    const int64_t left = pass.steps - step - block.steps;
    const int64_t next_bytes = (left > 0 ? std::min(kPieceSteps, left) : pass.next_steps) * bytes;
    Ahead ahead{.next = left > 0 ? w + block.steps * bytes : pass.next};
    ahead.end = ahead.next + next_bytes;
    ahead.lines = divide_up(divide_up(next_bytes, kLine), blocks * block.steps);
    for (int64_t group = 0; group < pass.groups; group += kBlockGroups) {
      const int64_t together = std::min(kBlockGroups, pass.groups - group);
      for (int64_t i = 0; i < together; ++i) {
        const int64_t row = group_row(args, pass.first_group + group + i);
        const int64_t at = pass.first_step + step;
        block.x[i] = static_cast<const char*>(args.x) + row * block.stride + at * kXStepBytes;
        if (pass.x_sums != nullptr) {
          block.x_sums[i] = pass.x_sums + (row - pass.x_sums_row) * block.x_sums_stride + at;
        }
      }
      block.results = pass.results + group * kGroupSums;
      if (together == 1) {
        multiply_block<1>(block, scratch.step_sums, ahead);
      } else {
        multiply_block<2>(block, scratch.step_sums, ahead);
      }
    }
  }
}

// The sums of x over each step's depths, for the rows of a set.
void take_x_sums(const GemmArgs& args, const Scratch& scratch, PanelPass& set) {
  if (sums_x(args)) {
    set.x_sums = scratch.x_sums;
    set.x_sums_row = group_row(args, set.first_group);
    const int64_t end = std::min(args.rows, (set.first_group + set.groups) * kGroupRows);
    avx512bf16::sum_x(args, set.x_sums_row, end - set.x_sums_row, scratch.x_sums);
  } else if (has_minimum(args.w.quantization)) {
    set.x_sums = static_cast<const float*>(args.prepared);
  }
}

// The results of a panel (or of a pair) go to y.
void write_rows(const GemmArgs& args, const Cut& cut, const PanelPass& set, const float* results,
                int64_t panel) {
  const int64_t end = std::min(args.rows, (set.first_group + set.groups) * kGroupRows);
  for (int64_t row = set.first_group * kGroupRows; row < end; ++row) {
    const int64_t group = row / kGroupRows;
    const float* c = results + (group - set.first_group) * kGroupSums +
                     (row - group_row(args, group)) * kPanelColumns;
    if (args.store == GemmStore::kSiluMul) {
      avx512::store_activated(args, c, c + cut.panel_results(), row, panel / 2 * kPanelColumns);
    } else {
      avx512::store_row(args, c, row, panel * kPanelColumns);
    }
  }
}

// Puts the weights of the next pass, which takes `panel` from `step` on, into `pass`. If there is
// no such panel, the next pass has no steps.
void find_next(const GemmArgs& args, int64_t panel, int64_t step, PanelPass& pass) {
  pass.next = pass.w;
  pass.next_steps = 0;
  if (panel < args.w.panels()) {
    pass.next = step_of(args, panel, step);
    pass.next_steps = std::min(kPieceSteps, args.w.k / 32 - step);
  }
}

// All sets of rows with the panels [begin, end).
void run_panels(const GemmArgs& args, const Cut& cut, int64_t begin, int64_t end,
                const Scratch& scratch) {
  const int64_t steps = args.w.k / 32;
  const int64_t groups = divide_up(args.rows, kGroupRows);
  const int64_t unit = args.panel_unit();
  PanelPass pass;
  for (int64_t set = 0; set < groups; set += cut.set_groups) {
    pass.first_group = set;
    pass.groups = std::min(cut.set_groups, groups - set);
    take_x_sums(args, scratch, pass);
    for (int64_t step = 0; step < steps; step += cut.chunk_steps) {
      pass.first_step = step;
      pass.steps = std::min(cut.chunk_steps, steps - step);
      const bool last = step + pass.steps == steps;
      for (int64_t panel = begin; panel < end; ++panel) {
        pass.w = step_of(args, panel, step);
        if (panel + 1 < end) {
          find_next(args, panel + 1, step, pass);
        } else if (!last) {
          find_next(args, begin, step + pass.steps, pass);
        } else {
          find_next(args, set + cut.set_groups < groups ? begin : end, 0, pass);
        }
        const int64_t place = (panel - begin) % cut.result_panels;
        pass.results = scratch.results + place * cut.panel_results();
        run_pass(args, pass, scratch);
        if (last && (panel + 1 - begin) % unit == 0) {
          write_rows(args, cut, pass, pass.results - (unit - 1) * cut.panel_results(),
                     panel + 1 - unit);
        }
      }
    }
  }
}

}  // namespace

int64_t quantized_scratch_bytes(const GemmArgs& args) {
  return args.rows <= 0 ? 0 : Scratch::bytes(args, cut_of(args));
}

void quantized_gemm(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch) {
  const FlushDenormals throughout;  // as the matrix unit does
  const Cut cut = cut_of(args);
  const Scratch parts(args, cut, scratch);
  configure(std::min(args.rows, kGroupRows));
  for (int64_t panel = panel_begin; panel < panel_end; panel += cut.panels_together) {
    run_panels(args, cut, panel, std::min(panel_end, panel + cut.panels_together), parts);
  }
  _tile_release();
}

}  // namespace tandem::kernels::amx
HWY_POP_ATTRIBUTES
