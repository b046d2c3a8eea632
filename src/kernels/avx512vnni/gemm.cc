// Y = X W^T of quantised weights with activations rounded to int8: vpdpbusd adds four products of
// an unsigned and a signed byte to each of 16 sums. Weights are the unsigned operand, so an offset
// is added to them; each sum begins with minus the offset times the sum of x.
//
// The rows of a set are rounded once and lie in scratch, in blocks whose rows alternate from step
// to step. All blocks multiply a piece of a panel, which stays in the L1 cache, while parts of the
// next piece are fetched. Registers hold the integer sums of a group and the results of up to 6
// rows x 32 columns. A result takes its groups in the order of depth, so a row never depends on its
// company.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/avx512/result_rows.h"
#include "kernels/avx512vnni/avx512vnni.h"
#include "kernels/avx512vnni/rounded_rows.h"
#include "kernels/flush_denormals.h"
#include "kernels/panel_layout.h"
#include "kernels/portable/portable.h"

// gcc 12 takes the operands that its own intrinsics leave undefined for uninitialized variables.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512bw,avx512dq,avx512vnni")
namespace tandem::kernels::avx512vnni {

namespace {

constexpr int64_t kSetRows = 16 * kByteBlockRows;
constexpr int64_t kSetBytes = 640 * 1024;  // the rounded rows of a set stay in the L2 cache
constexpr int64_t kGroup = kQuantizedGroup;
constexpr int64_t kQuads = kGroup / 4;
constexpr int64_t kLine = 64;
constexpr int64_t kPieceSteps = 12;    // 13 KB of int8, less than half of the L1 cache
constexpr int64_t kAheadBytes = 4096;  // fetched ahead for a single block of rows
constexpr int64_t kRowSums = kPanelColumns;

int64_t set_rows_of(const GemmArgs& args) {
  const int64_t fit = kSetBytes / args.w.k / kByteBlockRows * kByteBlockRows;
  const int64_t max_rows = std::clamp(fit, kByteBlockRows, kSetRows);
  return divide_up(args.rows, divide_up(args.rows, max_rows));
}

// Scratch: the rounded rows of a set, the results of a panel or of a pair.
struct ByteScratch {
  RoundedRows rows;
  float* c = nullptr;
  int64_t bytes = 0;
};

ByteScratch divide_scratch(const GemmArgs& args, void* memory) {
  auto* base = static_cast<char*>(memory);
  ByteScratch scratch;
  const auto take = [&](int64_t bytes) {
    char* at =
        base == nullptr ? nullptr : base + scratch.bytes;  // null: only the size is asked for
    scratch.bytes += round_up(bytes, kLine);
    return at;
  };
  const int64_t rows = set_rows_of(args);
  const int64_t groups = rows * (args.w.k / kGroup);
  scratch.c = reinterpret_cast<float*>(take(args.panel_unit() * rows * kRowSums * 4));
  scratch.rows.values = reinterpret_cast<int8_t*>(take(groups * kGroup));
  scratch.rows.scales = reinterpret_cast<float*>(take(groups * 4));
  scratch.rows.sums = reinterpret_cast<float*>(take(groups * 4));
  scratch.rows.starts = reinterpret_cast<int32_t*>(take(groups * 4));
  return scratch;
}

// ---------------------------------------------------------------- weights

// Two quads of depths of 16 columns, as unsigned bytes.
struct TwoQuads {
  __m512i quads[2];
};

// Quads 2 * `two` and its successor. A line of int4 has depths 0, 4, 1, 5 of eight in its lower
// bits and 2, 6, 3, 7 in the upper bits.
template <Quantization kKind>
HWY_INLINE TwoQuads load_quads(const char* step, int64_t half, int64_t two) {
  if constexpr (kKind == Quantization::kInt8) {
    const char* from = step + (4 * two + half) * kLine;
    return {{_mm512_load_si512(from), _mm512_load_si512(from + 2 * kLine)}};
  } else {
    const __m512i four_bits = _mm512_set1_epi8(15);
    const __m512i line =
        _mm512_load_si512(step + half * (panel_layout::step_value_bytes(kKind) / 2) + two * kLine);
    return {{_mm512_and_si512(line, four_bits),
             _mm512_and_si512(_mm512_srli_epi16(line, 4), four_bits)}};
  }
}

enum class GroupNumbers : uint8_t { kScales, kMinima };

// The scales or minima of 16 columns, which are half a step.
template <Quantization kKind>
HWY_INLINE __m512 load_numbers(const char* step, int64_t half, GroupNumbers numbers) {
  const bool minima = numbers == GroupNumbers::kMinima;
  const char* from = step + panel_layout::step_value_bytes(kKind);
  from += (minima ? panel_layout::kScalesBytes : 0) + half * kLine / 2;
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(from)));
}

// ---------------------------------------------------------------- products

// A block of rows with a piece of a panel: the rounded rows at the piece's first group.
struct BlockPiece {
  RoundedRows x;
  const char* w = nullptr;
  int64_t steps = 0;
  bool first = false;          // the piece begins at depth 0, so results begin with zero
  const char* next = nullptr;  // null: of a single block
  int64_t next_lines = 0;      // fetched at each step
};

// Fetches a step's part of the next piece, or, for a single block, kAheadBytes ahead.
template <Quantization kKind>
HWY_INLINE void fetch_part(const BlockPiece& piece, int64_t step, const char* w) {
  if (piece.next != nullptr) {
    const char* next = piece.next + step * piece.next_lines * kLine;
    for (int64_t line = 0; line < piece.next_lines; ++line) {
      _mm_prefetch(next + line * kLine, _MM_HINT_T0);
    }
  } else {
    for (int64_t at = 0; at < panel_layout::step_bytes(kKind); at += kLine) {
      _mm_prefetch(w + kAheadBytes + at, _MM_HINT_T0);
    }
  }
}

// A quad of depths of both halves of the columns.
template <int kRows>
HWY_INLINE void multiply_quad(const int8_t* x, __m512i left, __m512i right,
                              __m512i (&sums)[kRows][2]) {
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    int32_t four = 0;
    std::memcpy(&four, x + r * kGroup, sizeof four);
    const __m512i quad = _mm512_set1_epi32(four);
    sums[r][0] = _mm512_dpbusd_epi32(sums[r][0], left, quad);
    sums[r][1] = _mm512_dpbusd_epi32(sums[r][1], right, quad);
  }
}

template <Quantization kKind, int kRows>
HWY_INLINE void multiply_step(const int8_t* x, const char* w, __m512i (&sums)[kRows][2]) {
#pragma GCC unroll 4
  for (int64_t two = 0; two < kQuads / 2; ++two, x += 8) {
    const TwoQuads left = load_quads<kKind>(w, 0, two);
    const TwoQuads right = load_quads<kKind>(w, 1, two);
    multiply_quad<kRows>(x, left.quads[0], right.quads[0], sums);
    multiply_quad<kRows>(x + 4, left.quads[1], right.quads[1], sums);
  }
}

// results += scales * the rows' scales * sums, + minima * the rows' sums. `at`: the index of the
// first row's group.
template <Quantization kKind, int kRows>
HWY_INLINE void add_group(const RoundedRows& x, int64_t at, const char* step,
                          const __m512i (&sums)[kRows][2], __m512 (&results)[kRows][2]) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const __m512 scales = load_numbers<kKind>(step, half, GroupNumbers::kScales);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m512 both = _mm512_mul_ps(scales, _mm512_set1_ps(x.scales[at + r]));
      results[r][half] = _mm512_fmadd_ps(both, _mm512_cvtepi32_ps(sums[r][half]), results[r][half]);
    }
    if constexpr (has_minimum(kKind)) {
      const __m512 minima = load_numbers<kKind>(step, half, GroupNumbers::kMinima);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        results[r][half] =
            _mm512_fmadd_ps(minima, _mm512_set1_ps(x.sums[at + r]), results[r][half]);
      }
    }
  }
}

template <Quantization kKind, int kRows>
HWY_NOINLINE void multiply_bytes(const BlockPiece& piece, float* c) {
  __m512 results[kRows][2];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    results[r][0] = piece.first ? _mm512_setzero_ps() : _mm512_load_ps(c + r * kRowSums);
    results[r][1] = piece.first ? _mm512_setzero_ps() : _mm512_load_ps(c + r * kRowSums + 16);
  }
  const char* w = piece.w;
  for (int64_t step = 0; step < piece.steps; ++step, w += panel_layout::step_bytes(kKind)) {
    const int64_t at = step * kRows;
    __m512i sums[kRows][2];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = sums[r][1] = _mm512_set1_epi32(piece.x.starts[at + r]);
    }
    fetch_part<kKind>(piece, step, w);
    multiply_step<kKind, kRows>(piece.x.values + at * kGroup, w, sums);
    add_group<kKind, kRows>(piece.x, at, w, sums, results);
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    _mm512_store_ps(c + r * kRowSums, results[r][0]);
    _mm512_store_ps(c + r * kRowSums + 16, results[r][1]);
  }
}

template <Quantization kKind>
void multiply_block_of(int64_t rows, const BlockPiece& piece, float* c) {
  switch (rows) {
    case 1:
      return multiply_bytes<kKind, 1>(piece, c);
    case 2:
      return multiply_bytes<kKind, 2>(piece, c);
    case 3:
      return multiply_bytes<kKind, 3>(piece, c);
    case 4:
      return multiply_bytes<kKind, 4>(piece, c);
    case 5:
      return multiply_bytes<kKind, 5>(piece, c);
    default:
      return multiply_bytes<kKind, 6>(piece, c);
  }
}

// The rows of a set with one panel, whose results go to c. `next`: the weights after it.
struct BytePanel {
  const RoundedRows* x = nullptr;
  int64_t rows = 0;
  int64_t steps = 0;
  const char* w = nullptr;
  const char* next = nullptr;
  float* c = nullptr;
};

// All blocks with a piece of a panel.
template <Quantization kKind>
void multiply_piece(const BytePanel& panel, int64_t step, BlockPiece piece) {
  const int64_t blocks = divide_up(panel.rows, kByteBlockRows);
  const char* next = piece.next;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t begin = block_begin(block, panel.rows);
    const int64_t count = block_begin(block + 1, panel.rows) - begin;
    piece.x = panel.x->from(begin * panel.steps + step * count);
    piece.next = next + block * piece.steps * piece.next_lines * kLine;
    multiply_block_of<kKind>(count, piece, panel.c + begin * kRowSums);
  }
}

template <Quantization kKind>
void multiply_panel(const BytePanel& panel) {
  const int64_t blocks = divide_up(panel.rows, kByteBlockRows);
  if (blocks == 1) {
    multiply_block_of<kKind>(
        panel.rows, {.x = *panel.x, .w = panel.w, .steps = panel.steps, .first = true}, panel.c);
    return;
  }
  constexpr int64_t kBytes = panel_layout::step_bytes(kKind);
  for (int64_t step = 0; step < panel.steps; step += kPieceSteps) {
    BlockPiece piece{.w = panel.w + step * kBytes,
                     .steps = std::min(kPieceSteps, panel.steps - step),
                     .first = step == 0};
    const int64_t end = step + piece.steps;
    piece.next = end < panel.steps ? panel.w + end * kBytes : panel.next;
    const int64_t lines = std::min(kPieceSteps, panel.steps) * kBytes / kLine;
    piece.next_lines = divide_up(lines, blocks * piece.steps);
    multiply_piece<kKind>(panel, step, piece);
  }
}

// The results of a panel, or of a pair of panels, go to y.
void write_results(const GemmArgs& args, int64_t panel, int64_t set, int64_t rows, const float* c) {
  for (int64_t row = 0; row < rows; ++row, c += kRowSums) {
    if (args.store == GemmStore::kSiluMul) {
      avx512::store_activated(args, c, c + rows * kRowSums, set + row, panel / 2 * kPanelColumns);
    } else {
      avx512::store_row(args, c, set + row, panel * kPanelColumns);
    }
  }
}

}  // namespace

int64_t gemm_scratch_bytes(const GemmArgs& args) {
  return args.rows <= 0 ? 0 : divide_scratch(args, nullptr).bytes;
}

void gemm(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch) {
  if (args.rows <= 0 || panel_begin >= panel_end) {
    return;
  }
  const FlushDenormals
      flush_y_and_bias;  // as other families do; integer products have no denormals
  const ByteScratch own = divide_scratch(args, scratch);
  const int64_t panel_bytes = args.w.bytes() / args.w.panels();
  const auto* data = static_cast<const char*>(args.w.data);
  const int64_t set_rows = set_rows_of(args);
  const int64_t unit = args.panel_unit();
  const auto multiply =
      args.w.quantization == Quantization::kInt8   ? multiply_panel<Quantization::kInt8>
      : args.w.quantization == Quantization::kInt4 ? multiply_panel<Quantization::kInt4>
                                                   : multiply_panel<Quantization::kInt4Symmetric>;
  for (int64_t set = 0; set < args.rows; set += set_rows) {
    const int64_t rows = std::min(set_rows, args.rows - set);
    round_rows(args, set, rows, own.rows);
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      const int64_t next = panel + 1 < panel_end ? panel + 1 : panel_begin;
      const int64_t place = panel % unit;
      multiply({.x = &own.rows,
                .rows = rows,
                .steps = args.w.k / kGroup,
                .w = data + panel * panel_bytes,
                .next = data + next * panel_bytes,
                .c = own.c + place * rows * kRowSums});
      if (place + 1 == unit) {
        write_results(args, panel + 1 - unit, set, rows, own.c);
      }
    }
  }
}

namespace {

int64_t either_scratch_bytes(const GemmArgs& args) {
  return args.w.int8_products() ? gemm_scratch_bytes(args)
                                : portable::avx512_gemm().gemm_scratch_bytes(args);
}

void either_gemm(const GemmArgs& args, int64_t panel_begin, int64_t panel_end, void* scratch) {
  if (args.w.int8_products()) {
    gemm(args, panel_begin, panel_end, scratch);
  } else {
    portable::avx512_gemm().gemm(args, panel_begin, panel_end, scratch);
  }
}

}  // namespace

void fill_gemm(Kernels& table) {
  table.gemm_scratch_bytes = either_scratch_bytes;
  table.gemm = either_gemm;
}

}  // namespace tandem::kernels::avx512vnni
HWY_POP_ATTRIBUTES
