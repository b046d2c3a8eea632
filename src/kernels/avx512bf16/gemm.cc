// Y = X W^T of bf16 and of quantised weights with the vector units' products of pairs: vdpbf16ps
// adds x[k] w[k] + x[k+1] w[k+1] to each of 16 columns. W's panels hold such pairs, x is read where
// it lies.
//
// Registers hold the sums of up to 12 rows x 32 columns. The rows of a set take a piece of a panel
// that fits the L1 cache one block of rows after the other, while the next piece is fetched in
// equal parts: so the stream of weights hides behind the products however many rows there are. Sets
// of rows, and cuts of the depth, keep x in the L2 cache while a group of panels passes by. An
// output takes its products in the order of depth in all of these, its sum is carried in fp32
// between pieces: so a row's result never depends on its company. The instruction adds the second
// product of a pair, then the first, each rounded: the vector families do the same (choice.h).
//
// The integers of quantised weights are exact in bf16. For a few rows they are unpacked in
// registers, in the stream from memory; for more, a piece at a time to scratch, where the blocks of
// rows find a piece of a bf16 panel. The sums of a step are scaled and added to the results.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/avx512/result_rows.h"
#include "kernels/avx512bf16/avx512bf16.h"
#include "kernels/avx512bf16/quantized_steps.h"
#include "kernels/avx512vnni/avx512vnni.h"
#include "kernels/flush_denormals.h"
#include "kernels/panel_layout.h"
#include "kernels/portable/portable.h"
#include "kernels/quantize.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16")
namespace tandem::kernels::avx512bf16 {

namespace {

constexpr int64_t kBlockRows = 12;
constexpr int64_t kXStepBytes = 64;          // of a row of x
constexpr int64_t kPairs = 16;               // in a step
constexpr int64_t kAheadBytes = 4096;        // where one block takes all
constexpr int64_t kRowSums = kPanelColumns;  // floats
constexpr int64_t kStreamedRows = 4;         // of quantised weights

// How a product is cut.
struct Cut {
  int64_t set_rows = 0;
  int64_t depth_steps = 0;   // whose x for a set fits the L2 cache
  int64_t group_panels = 0;  // that pass by before the next cut of the depth, then set
  int64_t sum_panels = 0;    // whose sums are in scratch together
  [[nodiscard]] int64_t panel_sums() const { return set_rows * kRowSums; }
};

Cut cut_of(const GemmArgs& args) {
  constexpr int64_t kSetRows = 8 * kBlockRows;
  constexpr int64_t kCutBytes = 512 * 1024;
  constexpr int64_t kGroupPanels = 16;
  const int64_t steps = args.w.k / 32;
  Cut cut;
  cut.set_rows = divide_up(args.rows, divide_up(args.rows, kSetRows));
  const int64_t cuts = divide_up(cut.set_rows * args.w.k * 2, kCutBytes);
  cut.depth_steps = divide_up(steps, cuts);
  const bool whole = cuts == 1;
  cut.group_panels = whole && cut.set_rows == args.rows ? args.w.panels() : kGroupPanels;
  cut.sum_panels = whole ? args.panel_unit() : kGroupPanels;
  return cut;
}

// Lines fetched after each pair of depths. One after the other, though a step's two halves are read
// side by side: fetched as they are read, as two runs of 1 KB, they came 5 to 20 % slower.
enum class Fetch : uint8_t { kNone, kOne, kTwo };

// The rows of a block: every third one, and the bytes from row to row.
struct BlockRows {
  const char* x[4] = {};
  int64_t stride = 0;
};

HWY_INLINE __m512bh load_weights(const char* at) {
  return reinterpret_cast<__m512bh>(_mm512_load_si512(at));
}
HWY_INLINE __m512bh broadcast_pair(const char* at) {
  int32_t pair;
  std::memcpy(&pair, at, sizeof(pair));
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

// Adds the products of 32 depths.
template <int kRows, Fetch kFetch>
HWY_INLINE void multiply_step(const BlockRows& rows, const char* w, const char* next,
                              __m512 (&sums)[kRows][2]) {
#pragma GCC unroll 4
  for (int64_t pair = 0; pair < kPairs; ++pair) {
    const __m512bh w0 = load_weights(w + pair * 64);
    const __m512bh w1 = load_weights(w + kHalfBytes + pair * 64);
    if constexpr (kFetch == Fetch::kOne) {
      _mm_prefetch(next + pair * 64, _MM_HINT_T0);
    }
    if constexpr (kFetch == Fetch::kTwo) {
      _mm_prefetch(next + pair * 128, _MM_HINT_T0);
      _mm_prefetch(next + pair * 128 + 64, _MM_HINT_T0);
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const __m512bh x = broadcast_pair(rows.x[r / 3] + r % 3 * rows.stride + pair * 4);
      sums[r][0] = _mm512_dpbf16_ps(sums[r][0], x, w0);
      sums[r][1] = _mm512_dpbf16_ps(sums[r][1], x, w1);
    }
  }
}

// A piece of a panel with a block of rows.
struct Piece {
  const char* w = nullptr;
  int64_t steps = 0;
  bool first = false;          // of the depth: sums begin with zero
  const char* next = nullptr;  // what is fetched meanwhile,
  int64_t next_steps = 0;      // half a step of it for each of so many steps
  // Of a quantised panel's piece that was unpacked: fp16 of the first step, and bytes to the next.
  const char* scales = nullptr;
  int64_t scale_stride = 0;
  // If it has minima: the sums of x over groups of the first row, from the piece's first group on,
  // and their number from row to row.
  const float* x_sums = nullptr;
  int64_t groups = 0;
};

template <int kRows>
HWY_NOINLINE void multiply(const char* x, int64_t stride, const Piece& piece, bool stream,
                           float* c) {
  __m512 sums[kRows][2];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    sums[r][0] = piece.first ? _mm512_setzero_ps() : _mm512_load_ps(c + r * kRowSums);
    sums[r][1] = piece.first ? _mm512_setzero_ps() : _mm512_load_ps(c + r * kRowSums + 16);
  }
  BlockRows rows{.stride = stride};
  const auto at_step = [&](int64_t step) HWY_ATTR {
    for (int i = 0; i < 4; ++i) {
      rows.x[i] = x + 3 * i * stride + step * kXStepBytes;
    }
  };
  const char* w = piece.w;
  const char* next = piece.next;
  int64_t step = 0;
  if (stream) {
    for (; step < piece.steps; ++step, w += kStepBytes) {
      at_step(step);
      multiply_step<kRows, Fetch::kTwo>(rows, w, w + kAheadBytes, sums);
    }
  }
  for (; step < piece.next_steps; ++step, w += kStepBytes, next += kStepBytes / 2) {
    at_step(step);
    multiply_step<kRows, Fetch::kOne>(rows, w, next, sums);
  }
  for (; step < piece.steps; ++step, w += kStepBytes) {
    at_step(step);
    multiply_step<kRows, Fetch::kNone>(rows, w, nullptr, sums);
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    _mm512_store_ps(c + r * kRowSums, sums[r][0]);
    _mm512_store_ps(c + r * kRowSums + 16, sums[r][1]);
  }
}

// ---------------------------------------------------------------- quantised weights

// A panel in its stream from memory, with few rows.
template <Quantization kQuantization, int kRows>
HWY_NOINLINE void multiply_stream(const char* x, int64_t stride, const Piece& piece, float* c) {
  constexpr int64_t kBytes = panel_layout::step_bytes(kQuantization);
  constexpr int64_t kValueBytes = panel_layout::step_value_bytes(kQuantization);
  const __m512i table = int4_table<kQuantization>();
  const char* w = piece.w;
  for (int64_t step = 0; step < piece.steps; ++step, w += kBytes, x += kXStepBytes) {
#pragma GCC unroll 17
    for (int64_t line = 0; line < kBytes; line += 64) {
      _mm_prefetch(w + kAheadBytes + line, _MM_HINT_T0);
    }
    for (int half = 0; half < 2; ++half) {
      __m512 sums[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        sums[r] = _mm512_setzero_ps();
      }
      const char* values = w + half * (kValueBytes / 2);
#pragma GCC unroll 4
      for (int64_t fours = 0; fours < 4; ++fours) {
        const FourPairs four = load_four<kQuantization>(values, fours, table);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) {
            const __m512bh pair = broadcast_pair(x + r * stride + (fours * 4 + i) * 4);
            sums[r] = _mm512_dpbf16_ps(sums[r], pair, four.pairs[i]);
          }
        }
      }
      const Scales scales = load_scales(w + kValueBytes + half * 32, has_minimum(kQuantization));
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        float* to = c + r * kRowSums + half * 16;
        if constexpr (has_minimum(kQuantization)) {
          add_scaled(scales, piece.first && step == 0, sums[r],
                     piece.x_sums[r * piece.groups + step], to);
        } else {
          add_scaled(scales, piece.first && step == 0, sums[r], to);
        }
      }
    }
  }
}

// An unpacked piece.
template <int kRows>
HWY_NOINLINE void multiply_scaled(const char* x, int64_t stride, const Piece& piece, float* c) {
  BlockRows rows{.stride = stride};
  const char* w = piece.w;
  for (int64_t step = 0; step < piece.steps; ++step, w += kStepBytes) {
    __m512 sums[kRows][2];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = _mm512_setzero_ps();
      sums[r][1] = _mm512_setzero_ps();
    }
    for (int i = 0; i < 4; ++i) {
      rows.x[i] = x + 3 * i * stride + step * kXStepBytes;
    }
    if (step < piece.next_steps) {
      multiply_step<kRows, Fetch::kOne>(rows, w, piece.next + step * kStepBytes / 2, sums);
    } else {
      multiply_step<kRows, Fetch::kNone>(rows, w, nullptr, sums);
    }
    const char* scales = piece.scales + step * piece.scale_stride;
    const bool minima = piece.x_sums != nullptr;
    const Scales left = load_scales(scales, minima);
    const Scales right = load_scales(scales + 32, minima);
    const bool first = piece.first && step == 0;
    if (minima) {
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const float x_sum = piece.x_sums[r * piece.groups + step];
        add_scaled(left, first, sums[r][0], x_sum, c + r * kRowSums);
        add_scaled(right, first, sums[r][1], x_sum, c + r * kRowSums + 16);
      }
      continue;
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      add_scaled(left, first, sums[r][0], c + r * kRowSums);
      add_scaled(right, first, sums[r][1], c + r * kRowSums + 16);
    }
  }
}

template <Quantization kQuantization>
void stream_rows(int64_t rows, const char* x, int64_t stride, const Piece& piece, float* c) {
  switch (rows) {
    case 1:
      return multiply_stream<kQuantization, 1>(x, stride, piece, c);
    case 2:
      return multiply_stream<kQuantization, 2>(x, stride, piece, c);
    case 3:
      return multiply_stream<kQuantization, 3>(x, stride, piece, c);
    default:
      return multiply_stream<kQuantization, 4>(x, stride, piece, c);
  }
}

// ---------------------------------------------------------------- all weights

template <int kRows>
void multiply_block(const char* x, int64_t stride, const Piece& piece, bool stream, float* c) {
  if (piece.scales != nullptr) {
    multiply_scaled<kRows>(x, stride, piece, c);
  } else {
    multiply<kRows>(x, stride, piece, stream, c);
  }
}

void multiply_rows(int64_t rows, const char* x, int64_t stride, const Piece& piece, bool stream,
                   float* c) {
  switch (rows) {
#define TANDEM_ROWS(n) \
  case n:              \
    return multiply_block<n>(x, stride, piece, stream, c);
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
#undef TANDEM_ROWS
    default:
      return multiply_block<12>(x, stride, piece, stream, c);
  }
}

// A cut of the depth of one panel, for a set of rows.
struct PanelPass {
  const char* x = nullptr;  // the set's first row, at this cut
  int64_t rows = 0;
  const char* w = nullptr;     // the panel, at this cut
  const char* next = nullptr;  // the weights of the pass after this one
  int64_t steps = 0;
  bool first = false;  // cut of the depth
  float* c = nullptr;  // the panel's sums
  Unpacked* unpacked = nullptr;
  const float* x_sums = nullptr;  // as of Piece
  int64_t groups = 0;
};

// The bytes of a step of a panel in memory.
int64_t stored_step_bytes(const GemmArgs& args) {
  return args.w.quantized() ? panel_layout::step_bytes(args.w.quantization) : kStepBytes;
}

// The weights of steps [step, step + piece.steps) of a pass, unpacked if they are quantised.
void take_weights(const GemmArgs& args, const PanelPass& pass, int64_t step, Piece& piece) {
  const int64_t bytes = stored_step_bytes(args);
  piece.w = pass.w + step * bytes;
  if (!args.w.quantized()) {
    return;
  }
  unpack(args.w.quantization, piece.w, piece.steps, *pass.unpacked);
  piece.scales = piece.w + panel_layout::step_value_bytes(args.w.quantization);
  piece.scale_stride = bytes;
  piece.w = pass.unpacked->w;
}

void run_streamed(const GemmArgs& args, const PanelPass& pass) {
  const int64_t stride = args.x_stride * 2;
  const Piece piece{.w = pass.w,
                    .steps = pass.steps,
                    .first = pass.first,
                    .x_sums = pass.x_sums,
                    .groups = pass.groups};
  if (args.w.quantization == Quantization::kInt8) {
    stream_rows<Quantization::kInt8>(pass.rows, pass.x, stride, piece, pass.c);
  } else if (args.w.quantization == Quantization::kInt4) {
    stream_rows<Quantization::kInt4>(pass.rows, pass.x, stride, piece, pass.c);
  } else if (args.w.quantization == Quantization::kInt4Symmetric) {
    stream_rows<Quantization::kInt4Symmetric>(pass.rows, pass.x, stride, piece, pass.c);
  } else {
    multiply_rows(pass.rows, pass.x, stride, piece, true, pass.c);
  }
}

void run_pass(const GemmArgs& args, const PanelPass& pass) {
  const int64_t stride = args.x_stride * 2;
  const int64_t blocks = divide_up(pass.rows, kBlockRows);
  if (args.w.quantized() ? pass.rows <= kStreamedRows : blocks == 1) {
    run_streamed(args, pass);
    return;
  }
  const int64_t bytes = stored_step_bytes(args);
  for (int64_t step = 0; step < pass.steps; step += kPieceSteps) {
    Piece piece;
    piece.steps = std::min(kPieceSteps, pass.steps - step);
    piece.first = pass.first && step == 0;
    take_weights(args, pass, step, piece);
    const int64_t end_step = step + piece.steps;
    const char* next = end_step < pass.steps ? pass.w + end_step * bytes : pass.next;
    // Of the next piece, half a step's bytes each.
    const int64_t parts =
        std::min(divide_up(piece.steps * bytes, kStepBytes / 2), blocks * piece.steps);
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t begin = block * pass.rows / blocks;
      const int64_t end = (block + 1) * pass.rows / blocks;
      const int64_t part = block * parts / blocks;
      piece.next = next + part * kStepBytes / 2;
      piece.next_steps = (block + 1) * parts / blocks - part;
      if (pass.x_sums != nullptr) {
        piece.x_sums = pass.x_sums + begin * pass.groups + step;
        piece.groups = pass.groups;
      }
      multiply_rows(end - begin, pass.x + begin * stride + step * kXStepBytes, stride, piece, false,
                    pass.c + begin * kRowSums);
    }
  }
}

// The sums of a panel (or of a pair) go to y.
void write_rows(const GemmArgs& args, const Cut& cut, const float* c, int64_t panel, int64_t begin,
                int64_t end) {
  for (int64_t row = begin; row < end; ++row, c += kRowSums) {
    if (args.store == GemmStore::kSiluMul) {
      avx512::store_activated(args, c, c + cut.panel_sums(), row, panel / 2 * kPanelColumns);
    } else {
      avx512::store_row(args, c, row, panel * kPanelColumns);
    }
  }
}

// A group of panels with all sets of rows.
void run_panels(const GemmArgs& args, const Cut& cut, int64_t begin, int64_t end, float* sums) {
  const int64_t steps = args.w.k / 32;
  const int64_t bytes = stored_step_bytes(args);
  const auto weights = [&](int64_t panel, int64_t step) {
    return static_cast<const char*>(args.w.data) + (panel * steps + step) * bytes;
  };
  auto* unpacked = reinterpret_cast<Unpacked*>(sums + cut.sum_panels * cut.panel_sums());
  auto* x_sums = reinterpret_cast<float*>(unpacked + 1);  // if the weights have minima
  for (int64_t set = 0; set < args.rows; set += cut.set_rows) {
    PanelPass pass{.unpacked = unpacked};
    pass.rows = std::min(cut.set_rows, args.rows - set);
    pass.groups = steps;
    const float* set_sums = x_sums;
    if (args.prepared != nullptr) {
      set_sums = static_cast<const float*>(args.prepared) + set * steps;
    } else if (has_minimum(args.w.quantization)) {
      sum_x(args, set, pass.rows, x_sums);
    }
    for (int64_t step = 0; step < steps; step += cut.depth_steps) {
      pass.steps = std::min(cut.depth_steps, steps - step);
      pass.x = static_cast<const char*>(args.x) + set * args.x_stride * 2 + step * kXStepBytes;
      pass.x_sums = has_minimum(args.w.quantization) ? set_sums + step : nullptr;
      pass.first = step == 0;
      const bool last = step + pass.steps == steps;
      for (int64_t panel = begin; panel < end; ++panel) {
        pass.w = weights(panel, step);
        pass.next = panel + 1 < end                  ? weights(panel + 1, step)
                    : !last                          ? weights(begin, step + pass.steps)
                    : set + cut.set_rows < args.rows ? weights(begin, 0)
                    : end < args.w.panels()          ? weights(end, 0)
                                                     : pass.w;
        const int64_t place = (panel - begin) % cut.sum_panels;
        pass.c = sums + place * cut.panel_sums();
        run_pass(args, pass);
        const int64_t unit = args.panel_unit();
        if (last && (panel + 1 - begin) % unit == 0) {
          write_rows(args, cut, pass.c - (unit - 1) * cut.panel_sums(), panel + 1 - unit, set,
                     set + pass.rows);
        }
      }
    }
  }
}

int64_t gemm_scratch_bytes(const GemmArgs& args) {
  if (args.w.int8_products()) {
    return avx512vnni::gemm_scratch_bytes(args);
  }
  if (args.w.type == ElementType::kF32) {
    return portable::gemm_of(Isa::kAvx512).gemm_scratch_bytes(args);
  }
  if (args.rows <= 0) {
    return 0;
  }
  const Cut cut = cut_of(args);
  return cut.sum_panels * cut.panel_sums() * int64_t{sizeof(float)} +
         (args.w.quantized() ? int64_t{sizeof(Unpacked)} : 0) +
         (has_minimum(args.w.quantization) && args.prepared == nullptr
              ? cut.set_rows * (args.w.k / 32) * int64_t{sizeof(float)}
              : 0);
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
  const FlushDenormals throughout;  // not in the products alone, which do so by themselves
  const Cut cut = cut_of(args);
  for (int64_t panel = panel_begin; panel < panel_end; panel += cut.group_panels) {
    run_panels(args, cut, panel, std::min(panel_end, panel + cut.group_panels),
               static_cast<float*>(scratch));
  }
}

}  // namespace

int64_t prepared_bytes(const GemmArgs& args) {
  if (args.w.int8_products()) {
    return avx512vnni::prepared_bytes(args);
  }
  return has_minimum(args.w.quantization) ? args.rows * (args.w.k / 32) * int64_t{sizeof(float)}
                                          : 0;
}

void prepare(const GemmArgs& args, int64_t row_begin, int64_t row_end, void* prepared) {
  if (args.w.int8_products()) {
    avx512vnni::prepare(args, row_begin, row_end, prepared);
    return;
  }
  const FlushDenormals as_in_products;
  sum_x(args, row_begin, row_end - row_begin,
        static_cast<float*>(prepared) + row_begin * (args.w.k / 32));
}

void fill_gemm(Kernels& table) {
  table.gemm_scratch_bytes = gemm_scratch_bytes;
  table.prepared_bytes = prepared_bytes;
  table.prepare = prepare;
  table.gemm = gemm;
}

}  // namespace tandem::kernels::avx512bf16
HWY_POP_ATTRIBUTES
