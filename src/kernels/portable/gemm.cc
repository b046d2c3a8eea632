// Y = X W^T with vector fused multiply-adds in fp32, for bf16, fp32 and quantised weights in the
// panel layout.
//
// Every output is one accumulator that takes its products in the order of depth, whatever the
// number of rows or the vector width: so a row's result never depends on its company. With bf16
// weights the second depth of a pair comes before the first, as with the instruction for products
// of pairs (avx512bf16), whose results these are bit for bit. Registers
// hold a block of R rows x 32 (or 16) columns; the rows of a block are copied to scratch as fp32,
// 16 depths of one row after those of the other, so that the inner loop reads x and w as two
// sequential streams and the copy moves whole vectors. Blocks of rows that fit the L2 cache
// together share one pass over the weights: each takes a piece of a panel that fits the L1 cache,
// one after the other, while the next piece is fetched in equal parts. So the stream of weights
// hides behind the arithmetic however many rows there are.
//
// A piece of a quantised panel becomes a piece of a bf16 one in scratch, of its integers, which
// bf16 holds exactly; for a few rows they become fp32 in registers (few_rows-inl.h). The sums of a
// step (a group of depths) are then scaled and added to the results. Activations that are rounded
// to int8 are integers in the copied rows, too: sums of a step's products stay below 2^24, so fp32
// holds them exactly, and results have the bits of the kernels that multiply bytes (avx2,
// avx512vnni, neondot). Processors that have none of these instructions, some of Arm, take this
// way.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>

#include "hwy/cache_control.h"
#include "kernels/flush_denormals.h"
#include "kernels/panel_layout.h"
#include "kernels/portable/depth_groups.h"
#include "kernels/portable/portable.h"
#include "kernels/quantize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/portable/gemm.cc"
#include "kernels/portable/target.h"
#if TANDEM_PORTABLE_TARGET

#include "kernels/portable/few_rows-inl.h"
#include "kernels/portable/math-inl.h"
#include "kernels/portable/products-inl.h"
#include "kernels/portable/unpack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::kernels::portable::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

namespace {

// Row blocks: wide ones keep all 32 columns of a panel in registers. With 16 registers (or narrow
// vectors) blocks of more than 3 rows take a panel in two halves of 16 columns.
constexpr bool kManyRegisters = kLanes == 16;
constexpr int kMaxRows = kManyRegisters ? 12 : 6;
constexpr int kWideRows = kManyRegisters ? 12 : 3;
static_assert(kFewRows <= kMaxRows);

constexpr int64_t kStepPairs = kStepBytes / 128;  // a pair of lines each: two depths, or one
constexpr int64_t kAheadBytes = 4096;             // where one pass takes all of a panel
constexpr int64_t kRowSetBytes = 1024 * 1024;     // x rows in scratch that share a pass over W

// Rows that share one pass over the weights.
int64_t row_set_size(const GemmArgs& args) {
  const int64_t fit = kRowSetBytes / (args.w.k * int64_t{sizeof(float)}) / kMaxRows * kMaxRows;
  return std::min(args.rows, std::max<int64_t>(fit, kMaxRows));
}

constexpr int64_t kPairColumns = 2 * kPanelColumns;  // gate and up

// Bytes for the sums of a set's x over groups of depths, and, with rounded activations, for scales.
int64_t group_sum_bytes(const GemmArgs& args) {
  const int64_t numbers = args.w.int8_products() ? 2 : (has_minimum(args.w.quantization) ? 1 : 0);
  return round_up(
      numbers * row_set_size(args) * (args.w.k / kQuantizedGroup) * int64_t{sizeof(float)}, 64);
}

// Scratch: the x of a set, sums between the pieces of a panel, products with gate and up, what a
// piece is unpacked to, and sums over groups of x, behind them their scales.
int64_t x_scratch_bytes(const GemmArgs& args) {
  return round_up(row_set_size(args) * args.w.k * int64_t{sizeof(float)}, 64);
}
int64_t sum_scratch_bytes(const GemmArgs& args) {
  return row_set_size(args) * kPanelColumns * int64_t{sizeof(float)};
}
int64_t gemm_scratch_bytes(const GemmArgs& args) {
  const bool pairs = args.store == GemmStore::kSiluMul;
  return x_scratch_bytes(args) + sum_scratch_bytes(args) * (pairs ? 3 : 1) +
         (args.w.quantized() ? int64_t{sizeof(Unpacked)} + group_sum_bytes(args) : 0);
}

FloatVec load_f32(const float* from) { return hn::LoadU(FloatTag(), from); }
FloatVec load_f32(const BFloat16* from) {
  const hn::Rebind<uint16_t, FloatTag> d16;
  const WordTag du;
  const auto bits = hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from)));
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(bits));
}

template <typename X>
void copy_row(const X* HWY_RESTRICT x, int64_t depth, int count, float* HWY_RESTRICT to) {
  for (int64_t k = 0; k < depth; k += kXDepths, to += count * kXDepths) {
    for (int64_t i = 0; i < kXDepths; i += kLanes) {
      hn::Store(load_f32(x + k + i), FloatTag(), to + i);
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

// Lines fetched beside each pair of lines that is read, one after the other.
enum class Fetch : uint8_t { kNone, kOne, kTwo };

template <Fetch kFetch>
HWY_INLINE void fetch(const char* next, int64_t pair) {
  if constexpr (kFetch == Fetch::kOne) {
    hwy::Prefetch(next + pair * 64);
  }
  if constexpr (kFetch == Fetch::kTwo) {
    hwy::Prefetch(next + pair * 128);
    hwy::Prefetch(next + pair * 128 + 64);
  }
}

// The products of a row block with `kHalves` halves of a step of a bf16 panel.
template <int kRows, int kHalves, Fetch kFetch>
HWY_INLINE void multiply_step(const float* HWY_RESTRICT x, const BFloat16* HWY_RESTRICT w,
                              const char* next, Sums<kRows, kHalves * kHalfVectors>& acc) {
  constexpr int kVectors = kHalves * kHalfVectors;
  const FloatTag d;
  const WordTag du;
  const auto upper = hn::Set(du, 0xffff0000U);
  for (int64_t pair = 0; pair < kStepPairs; ++pair, x += 2) {
    if (pair == kXDepths / 2) {
      x += (kRows - 1) * kXDepths;
    }
    fetch<kFetch>(next, pair);
    hn::Vec<WordTag> raw[kVectors];
    FloatVec odd[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const BFloat16* at = w + v / kHalfVectors * panel_layout::kTileElements + pair * 32 +
                           v % kHalfVectors * kLanes * 2;
      raw[v] = hn::Load(du, reinterpret_cast<const uint32_t*>(at));
      odd[v] = hn::BitCast(d, hn::And(raw[v], upper));
    }
    multiply_add<kRows, kVectors>(x + 1, odd, acc);
    FloatVec even[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      even[v] = hn::BitCast(d, hn::ShiftLeft<16>(raw[v]));
    }
    multiply_add<kRows, kVectors>(x, even, acc);
  }
}

// The same of an fp32 panel.
template <int kRows, int kHalves, Fetch kFetch>
HWY_INLINE void multiply_step(const float* HWY_RESTRICT x, const float* HWY_RESTRICT w,
                              const char* next, Sums<kRows, kHalves * kHalfVectors>& acc) {
  constexpr int kVectors = kHalves * kHalfVectors;
  const FloatTag d;
  for (int64_t k = 0; k < kStepPairs; ++k) {
    fetch<kFetch>(next, k);
    FloatVec row[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      row[v] = hn::Load(d, w + k * kPanelColumns + v * kLanes);
    }
    multiply_add<kRows, kVectors>(x + k, row, acc);
  }
}

// Elements of w from the first half of a panel's columns to the second, and depths in a step.
constexpr int64_t half_elements(const BFloat16*) { return panel_layout::kTileElements; }
constexpr int64_t half_elements(const float*) { return kPanelColumns / 2; }
template <typename Element>
constexpr int64_t step_depths() {
  return kStepBytes / int64_t{sizeof(Element)} / kPanelColumns;
}

// A part of a panel's depth, and what is fetched beside its products.
struct Piece {
  const char* w = nullptr;
  int64_t steps = 0;
  bool first = false;             // of the depth: sums begin with zero
  bool last = false;              // of the depth: sums are the results
  bool stream = false;            // fetch what lies kAheadBytes ahead; else
  const char* next = nullptr;     // from here half a step beside each
  int64_t next_steps = 0;         // of so many steps, at most `steps`
  const float* scales = nullptr;  // [steps, 32] of a quantised panel; else null
  const float* minima = nullptr;  // likewise, if it has minima
  // Then also the sums of x of the block's first row, from the piece's first group on, and their
  // number from row to row.
  const float* x_sums = nullptr;
  int64_t groups = 0;
  const float* x_scales = nullptr;  // scales of rounded activations, laid out as x_sums
};

template <typename Element, int kRows, int kHalves>
HWY_INLINE void multiply(const float* HWY_RESTRICT x, const Piece& piece, int half,
                         Sums<kRows, kHalves * kHalfVectors>& acc) {
  constexpr int64_t kXStep = step_depths<Element>() * kRows;
  constexpr int64_t kStepElements = kStepBytes / int64_t{sizeof(Element)};
  const auto* w = reinterpret_cast<const Element*>(piece.w);
  w += half * half_elements(w);
  const char* next = piece.next;
  int64_t step = 0;
  for (; piece.stream && step < piece.steps; ++step, x += kXStep, w += kStepElements) {
    const char* ahead = reinterpret_cast<const char*>(w) + kAheadBytes;
    multiply_step<kRows, kHalves, Fetch::kTwo>(x, w, ahead, acc);
  }
  for (; step < piece.next_steps; ++step, x += kXStep, w += kStepElements, next += kStepBytes / 2) {
    multiply_step<kRows, kHalves, Fetch::kOne>(x, w, next, acc);
  }
  for (; step < piece.steps; ++step, x += kXStep, w += kStepElements) {
    multiply_step<kRows, kHalves, Fetch::kNone>(x, w, nullptr, acc);
  }
}

// Where the sums of a row block with a panel are kept between pieces, and where they go.
struct Results {
  float* sums = nullptr;  // [rows, 32]
  float* y = nullptr;     // first row, first column of the panel
  int64_t stride = 0;
};

// y (+)= sums + bias
template <int kRows, int kVectors>
HWY_INLINE void store_results(const GemmArgs& args, const Results& results, int64_t column,
                              int half, const Sums<kRows, kVectors>& acc) {
  const FloatTag d;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    float* y = results.y + r * results.stride + half * 16;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      FloatVec sum = acc[r][v];
      if (args.bias != nullptr) {
        sum = hn::Add(sum, hn::LoadU(d, args.bias + column + half * 16 + v * kLanes));
      }
      if (args.store == GemmStore::kAdd) {
        sum = hn::Add(hn::LoadU(d, y + v * kLanes), sum);
      }
      hn::StoreU(sum, d, y + v * kLanes);
    }
  }
}

// sums (+)= scale * products, step by step.
template <int kRows, int kHalves>
HWY_INLINE void multiply_scaled(const float* HWY_RESTRICT x, const Piece& piece, int half,
                                float* HWY_RESTRICT sums) {
  constexpr int kVectors = kHalves * kHalfVectors;
  const auto* w = reinterpret_cast<const BFloat16*>(piece.w) + half * panel_layout::kTileElements;
  for (int64_t step = 0; step < piece.steps; ++step) {
    Sums<kRows, kVectors> acc;
    clear<kRows, kVectors>(acc);
    if (step < piece.next_steps) {
      const char* next = piece.next + step * kStepBytes / 2;
      multiply_step<kRows, kHalves, Fetch::kOne>(x, w, next, acc);
    } else {
      multiply_step<kRows, kHalves, Fetch::kNone>(x, w, nullptr, acc);
    }
    const int64_t at = step * kPanelColumns + half * 16;
    const GroupFactors<float> factors{
        piece.scales + at, piece.minima == nullptr ? nullptr : piece.minima + at,
        piece.x_sums + step, piece.x_scales == nullptr ? nullptr : piece.x_scales + step,
        piece.groups};
    add_scaled<kRows, kVectors>(factors, piece.first && step == 0, acc, sums);
    x += step_depths<BFloat16>() * kRows;
    w += kStepBytes / 2;
  }
}

template <int kRows, int kHalves>
HWY_NOINLINE void scaled_row_block(const GemmArgs& args, const float* x, const Piece& piece,
                                   const Results& results, int64_t column, int half) {
  constexpr int kVectors = kHalves * kHalfVectors;
  float* sums = results.sums + half * 16;
  multiply_scaled<kRows, kHalves>(x, piece, half, sums);
  if (!piece.last) {
    return;
  }
  Sums<kRows, kVectors> acc;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = hn::Load(FloatTag(), sums + r * kPanelColumns + v * kLanes);
    }
  }
  store_results<kRows, kVectors>(args, results, column, half, acc);
}

template <int kRows, int kHalves>
HWY_NOINLINE void row_block(const GemmArgs& args, const float* x, const Piece& piece,
                            const Results& results, int64_t column, int half) {
  constexpr int kVectors = kHalves * kHalfVectors;
  const FloatTag d;
  float* sums = results.sums + half * 16;
  Sums<kRows, kVectors> acc;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = piece.first ? hn::Zero(d) : hn::Load(d, sums + r * kPanelColumns + v * kLanes);
    }
  }
  if (args.w.type == ElementType::kF32) {
    multiply<float, kRows, kHalves>(x, piece, half, acc);
  } else {
    multiply<BFloat16, kRows, kHalves>(x, piece, half, acc);
  }
  if (piece.last) {
    store_results<kRows, kVectors>(args, results, column, half, acc);
    return;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(acc[r][v], d, sums + r * kPanelColumns + v * kLanes);
    }
  }
}

// The passes that a row block needs over a piece.
int passes_of(int64_t rows) { return rows <= kWideRows ? 1 : 2; }

template <int kRows>
void row_block_pass(const GemmArgs& args, const float* x, const Piece& piece,
                    const Results& results, int64_t column, int pass) {
  if constexpr (kRows > kMaxRows) {
    return;  // never called
  } else {
    constexpr int kHalves = kRows <= kWideRows ? 2 : 1;
    if (piece.scales != nullptr) {
      scaled_row_block<kRows, kHalves>(args, x, piece, results, column, pass);
    } else {
      row_block<kRows, kHalves>(args, x, piece, results, column, pass);
    }
  }
}

void row_block_of(int64_t rows, const GemmArgs& args, const float* x, const Piece& piece,
                  const Results& results, int64_t column, int pass) {
  switch (rows) {
#define TANDEM_ROWS(n) \
  case n:              \
    return row_block_pass<n>(args, x, piece, results, column, pass);
    TANDEM_ROWS(1)
    TANDEM_ROWS(2)
    TANDEM_ROWS(3)
    TANDEM_ROWS(4)
    TANDEM_ROWS(5)
    TANDEM_ROWS(6)
    TANDEM_ROWS(7)
    TANDEM_ROWS(8)
    TANDEM_ROWS(9)
    TANDEM_ROWS(10)
    TANDEM_ROWS(11)
    TANDEM_ROWS(12)
#undef TANDEM_ROWS
    default:
      return;
  }
}

// A set of rows in scratch, cut into blocks of nearly the same size.
struct RowSet {
  const float* x = nullptr;
  int64_t rows = 0;
  [[nodiscard]] int64_t blocks() const { return divide_up(rows, kMaxRows); }
  [[nodiscard]] int64_t block_begin(int64_t block) const { return block * rows / blocks(); }
  [[nodiscard]] int64_t block_rows(int64_t block) const {
    return block_begin(block + 1) - block_begin(block);
  }
  [[nodiscard]] int64_t passes() const {
    int64_t sum = 0;
    for (int64_t block = 0; block < blocks(); ++block) {
      sum += passes_of(block_rows(block));
    }
    return sum;
  }
};

// All blocks of a set with one piece, each fetching its part of the `next_bytes` that come `next`.
void multiply_piece(const GemmArgs& args, const RowSet& set, int64_t depth,
                    std::span<const char> next, Piece piece, const Results& results,
                    int64_t column) {
  const int64_t passes = set.passes();
  const int64_t parts = std::min(divide_up(std::ssize(next), kStepBytes / 2), passes * piece.steps);
  const float* x_sums = piece.x_sums;
  const float* x_scales = piece.x_scales;
  int64_t done = 0;
  for (int64_t block = 0; block < set.blocks(); ++block) {
    const int64_t begin = set.block_begin(block);
    const int64_t rows = set.block_rows(block);
    const float* x = set.x + begin * args.w.k + depth * rows;
    const Results own{results.sums + begin * kPanelColumns, results.y + begin * results.stride,
                      results.stride};
    for (int pass = 0; pass < passes_of(rows); ++pass, ++done) {
      const int64_t part = done * parts / passes;
      piece.x_sums = x_sums + begin * piece.groups;
      piece.x_scales = x_scales == nullptr ? nullptr : x_scales + begin * piece.groups;
      piece.next = next.data() + part * kStepBytes / 2;
      piece.next_steps = (done + 1) * parts / passes - part;
      row_block_of(rows, args, x, piece, own, column, pass);
    }
  }
}

// multiply_set for a few rows of quantised weights.
void multiply_set_in_registers(const GemmArgs& args, const RowSet& set, int64_t panel,
                               const Results& results, const float* x_sums) {
  const int64_t groups = args.w.k / kQuantizedGroup;
  const int64_t panel_bytes = groups * panel_layout::step_bytes(args.w.quantization);
  const char* w = static_cast<const char*>(args.w.data) + panel * panel_bytes;
  few_rows_of(args.w.quantization, set.rows)(set.x, w, groups, x_sums, results.sums);
  for (int64_t row = 0; row < set.rows; ++row) {
    Sums<1, 2 * kHalfVectors> sums;
    const float* from = results.sums + row * kPanelColumns;
    for (int v = 0; v < 2 * kHalfVectors; ++v) {
      sums[0][v] = hn::Load(FloatTag(), from + v * kLanes);
    }
    const Results own{nullptr, results.y + row * results.stride, results.stride};
    store_results<1, 2 * kHalfVectors>(args, own, panel * kPanelColumns, 0, sums);
  }
}

// multiply_set for quantised weights.
void multiply_set_scaled(const GemmArgs& args, const RowSet& set, int64_t panel, int64_t next,
                         const Results& results, Unpacked* unpacked) {
  const auto* x_sums = reinterpret_cast<const float*>(unpacked + 1);
  if (set.rows <= kFewRows && !args.w.int8_products()) {
    multiply_set_in_registers(args, set, panel, results, x_sums);
    return;
  }
  const Quantization quantization = args.w.quantization;
  const int64_t steps = args.w.k / panel_layout::kStepDepths;
  const int64_t bytes = panel_layout::step_bytes(quantization);
  const auto* data = static_cast<const char*>(args.w.data);
  Piece piece{.w = reinterpret_cast<const char*>(unpacked->w)};
  piece.scales = unpacked->scales;
  const float* x_scales = args.w.int8_products() ? x_sums + set.rows * steps : nullptr;
  piece.minima = has_minimum(quantization) ? unpacked->minima : nullptr;
  piece.groups = steps;
  for (int64_t step = 0; step < steps; step += kPieceSteps) {
    const char* from = data + (panel * steps + step) * bytes;
    piece.steps = std::min(kPieceSteps, steps - step);
    piece.first = step == 0;
    piece.last = step + piece.steps == steps;
    piece.x_sums = x_sums + step;
    piece.x_scales = x_scales == nullptr ? nullptr : x_scales + step;
    unpack_steps(args.w, from, piece.steps, *unpacked);
    const char* after = piece.last ? data + next * steps * bytes : from + piece.steps * bytes;
    multiply_piece(args, set, step * panel_layout::kStepDepths,
                   {after, static_cast<size_t>(piece.steps * bytes)}, piece, results,
                   panel * kPanelColumns);
  }
}

// A set of rows with one panel; its first row's results go to `results`. `next`: the panel that
// comes after it.
void multiply_set(const GemmArgs& args, const RowSet& set, int64_t panel, int64_t next,
                  const Results& results, Unpacked* /*unpacked*/) {
  const int64_t element = element_bytes(args.w.type);
  const int64_t panel_bytes = kPanelColumns * args.w.k * element;
  const int64_t steps = panel_bytes / kStepBytes;
  const auto* data = static_cast<const char*>(args.w.data);
  const int64_t column = panel * kPanelColumns;
  Piece piece{.w = data + panel * panel_bytes};
  if (set.passes() == 1) {
    piece.steps = steps;
    piece.first = piece.last = piece.stream = true;
    row_block_of(set.rows, args, set.x, piece, results, column, 0);
    return;
  }
  for (int64_t step = 0; step < steps; step += kPieceSteps) {
    piece.w = data + panel * panel_bytes + step * kStepBytes;
    piece.steps = std::min(kPieceSteps, steps - step);
    piece.first = step == 0;
    piece.last = step + piece.steps == steps;
    const char* after = piece.last ? data + next * panel_bytes : piece.w + piece.steps * kStepBytes;
    multiply_piece(args, set, step * kStepBytes / (kPanelColumns * element),
                   {after, static_cast<size_t>(piece.steps * kStepBytes)}, piece, results, column);
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

// The x of a set in scratch, and what belongs to its groups.
void copy_set(const GemmArgs& args, int64_t begin, const RowSet& set, float* x, float* groups) {
  const int64_t groups_per_row = args.w.k / kQuantizedGroup;
  for (int64_t block = 0; block < set.blocks(); ++block) {
    const int64_t first = set.block_begin(block);
    const int count = static_cast<int>(set.block_rows(block));
    if (args.w.int8_products()) {
      float* sums = groups + first * groups_per_row;
      copy_rounded_rows(args, begin + first, count, x + first * args.w.k, sums,
                        sums + set.rows * groups_per_row);
    } else {
      copy_rows(args, begin + first, count, x + first * args.w.k);
    }
  }
}

void multiply_panels(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch) {
  auto* x = static_cast<float*>(scratch);
  auto* sums = reinterpret_cast<float*>(static_cast<char*>(scratch) + x_scratch_bytes(args));
  float* pair = sums + sum_scratch_bytes(args) / int64_t{sizeof(float)};
  float* end = pair + (args.store == GemmStore::kSiluMul ? 2 : 0) * (pair - sums);
  auto* unpacked = reinterpret_cast<Unpacked*>(end);  // if the weights are quantised
  const auto run_set = args.w.quantized() ? multiply_set_scaled : multiply_set;
  const int64_t set_size = args.rows > 0 ? row_set_size(args) : 1;
  for (int64_t begin = 0; begin < args.rows; begin += set_size) {
    const RowSet set{x, std::min(set_size, args.rows - begin)};
    auto* groups = reinterpret_cast<float*>(unpacked + 1);
    if (has_minimum(args.w.quantization) && !args.w.int8_products()) {
      sum_groups(args, begin, set.rows, groups);
    }
    copy_set(args, begin, set, x, groups);
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      const int64_t next = panel + 1 < panel_end ? panel + 1 : panel_begin;
      if (args.store != GemmStore::kSiluMul) {
        float* y = args.y + begin * args.y_stride + panel * kPanelColumns;
        run_set(args, set, panel, next, {sums, y, args.y_stride}, unpacked);
        continue;
      }
      const int64_t half = (panel - panel_begin) % 2;
      run_set(args, set, panel, next, {sums, pair + half * kPanelColumns, kPairColumns}, unpacked);
      if (half == 1) {
        activate_set(args, pair, begin, begin + set.rows, panel - 1);
      }
    }
  }
}

void gemm(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch) {
  if (args.w.type == ElementType::kF32) {
    multiply_panels(args, panel_begin, panel_end, scratch);
    return;
  }
  const FlushDenormals as_products_of_pairs_do;
  multiply_panels(args, panel_begin, panel_end, scratch);
}

}  // namespace

void fill_gemm(Kernels& table) {
  table.gemm_scratch_bytes = gemm_scratch_bytes;
  table.prepared_bytes = prepares_nothing;
  table.prepare = nullptr;
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
TANDEM_PORTABLE_EXPORT(fill_gemm, Kernels)
}
#endif
