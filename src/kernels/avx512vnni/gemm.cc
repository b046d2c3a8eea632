// Y = X W^T of quantised weights with activations rounded to int8: vpdpbusd adds four products of
// an unsigned and a signed byte to each of 16 sums. Weights are the unsigned operand, so an offset
// is added to them; each sum begins with minus the offset times the sum of x.
//
// The rows of a set are rounded once and lie in scratch, in blocks whose rows alternate from step
// to step. A piece of a panel is unpacked to bytes, and all blocks multiply it while parts of the
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
// An unpacked step of a panel has its values, then its scales and its minima in fp32.
constexpr int64_t kUnpackedValueBytes = kPanelColumns * kGroup;
constexpr int64_t kUnpackedNumbersBytes = kPanelColumns * 4;
constexpr int64_t kUnpackedStepBytes = kUnpackedValueBytes + 2 * kUnpackedNumbersBytes;
constexpr int64_t kPieceSteps = 12;    // 15 KB, half of the L1 cache
constexpr int64_t kAheadBytes = 4096;  // fetched ahead for a single block of rows
constexpr int64_t kRowSums = kPanelColumns;

int64_t set_rows_of(const GemmArgs& args) {
  const int64_t fit = kSetBytes / args.w.k / kByteBlockRows * kByteBlockRows;
  const int64_t max_rows = std::clamp(fit, kByteBlockRows, kSetRows);
  return divide_up(args.rows, divide_up(args.rows, max_rows));
}

// Scratch: the rounded rows of a set, the results of a panel or of a pair, an unpacked piece.
struct ByteScratch {
  RoundedRows rows;
  float* c = nullptr;
  char* unpacked = nullptr;
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
  scratch.unpacked = take(kPieceSteps * kUnpackedStepBytes);
  scratch.c = reinterpret_cast<float*>(take(args.panel_unit() * rows * kRowSums * 4));
  scratch.rows.values = reinterpret_cast<int8_t*>(take(groups * kGroup));
  scratch.rows.scales = reinterpret_cast<float*>(take(groups * 4));
  scratch.rows.sums = reinterpret_cast<float*>(take(groups * 4));
  scratch.rows.starts = reinterpret_cast<int32_t*>(take(groups * 4));
  return scratch;
}

// ---------------------------------------------------------------- weights

// How a step of a panel lies in memory: as it is stored, or unpacked, as bytes u8 [2 halves][8
// quads][16 columns][4 depths] and, of 32 columns each in fp32, scales and room for minima.
enum class StepForm : uint8_t { kInt8, kInt4, kInt4Symmetric, kUnpacked, kUnpackedWithMinima };

constexpr bool is_unpacked(StepForm form) {
  return form == StepForm::kUnpacked || form == StepForm::kUnpackedWithMinima;
}
constexpr bool with_minima(StepForm form) {
  return form == StepForm::kInt4 || form == StepForm::kUnpackedWithMinima;
}
constexpr Quantization stored_as(StepForm form) {
  return form == StepForm::kInt8   ? Quantization::kInt8
         : form == StepForm::kInt4 ? Quantization::kInt4
                                   : Quantization::kInt4Symmetric;
}
constexpr int64_t value_bytes(StepForm form) {
  return is_unpacked(form) ? kUnpackedValueBytes : panel_layout::step_value_bytes(stored_as(form));
}
constexpr int64_t bytes_of_step(StepForm form) {
  return is_unpacked(form) ? kUnpackedStepBytes : panel_layout::step_bytes(stored_as(form));
}

// Two quads of depths of 16 columns, as unsigned bytes.
struct TwoQuads {
  __m512i quads[2];
};

// A line of two pairs of depths becomes a quad, with 128 added to each byte.
HWY_INLINE __m512i quad_of_pairs(const char* line) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i quad = _mm512_permutexvar_epi16(order, _mm512_load_si512(line));
  return _mm512_xor_si512(quad, _mm512_set1_epi8(-128));
}

// Quads 2 * `two` and its successor. A line of int4 has depths 0, 4, 1, 5 of eight in its lower
// bits and 2, 6, 3, 7 in the upper bits.
template <StepForm kForm>
HWY_INLINE TwoQuads load_quads(const char* step, int64_t half, int64_t two) {
  const char* from = step + half * (value_bytes(kForm) / 2);
  if constexpr (is_unpacked(kForm)) {
    return {{_mm512_load_si512(from + two * 2 * kLine),
             _mm512_load_si512(from + two * 2 * kLine + kLine)}};
  } else if constexpr (kForm == StepForm::kInt8) {
    return {{quad_of_pairs(from + two * 2 * kLine), quad_of_pairs(from + two * 2 * kLine + kLine)}};
  } else {
    const __m512i four_bits = _mm512_set1_epi8(15);
    const __m512i line = _mm512_load_si512(from + two * kLine);
    return {{_mm512_and_si512(line, four_bits),
             _mm512_and_si512(_mm512_srli_epi16(line, 4), four_bits)}};
  }
}

enum class GroupNumbers : uint8_t { kScales, kMinima };

// The scales or minima of 16 columns, which are half a step.
template <StepForm kForm>
HWY_INLINE __m512 load_numbers(const char* step, int64_t half, GroupNumbers numbers) {
  const bool minima = numbers == GroupNumbers::kMinima;
  const char* from = step + value_bytes(kForm);
  if constexpr (is_unpacked(kForm)) {
    return _mm512_load_ps(from + (minima ? kUnpackedNumbersBytes : 0) + half * kLine);
  } else {
    from += (minima ? panel_layout::kScalesBytes : 0) + half * kLine / 2;
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(from)));
  }
}

template <StepForm kForm>
void unpack_steps(const char* from, int64_t steps, char* to) {
  for (int64_t step = 0; step < steps;
       ++step, from += bytes_of_step(kForm), to += kUnpackedStepBytes) {
    char* numbers = to + kUnpackedValueBytes;
    for (int64_t half = 0; half < 2; ++half) {
      char* values = to + half * (kUnpackedValueBytes / 2);
#pragma GCC unroll 4
      for (int64_t two = 0; two < kQuads / 2; ++two) {
        const TwoQuads loaded = load_quads<kForm>(from, half, two);
        _mm512_store_si512(values + two * 2 * kLine, loaded.quads[0]);
        _mm512_store_si512(values + two * 2 * kLine + kLine, loaded.quads[1]);
      }
      _mm512_store_ps(numbers + half * kLine,
                      load_numbers<kForm>(from, half, GroupNumbers::kScales));
      if constexpr (with_minima(kForm)) {
        _mm512_store_ps(numbers + kUnpackedNumbersBytes + half * kLine,
                        load_numbers<kForm>(from, half, GroupNumbers::kMinima));
      }
    }
  }
}

// ---------------------------------------------------------------- products

// A block of rows with a piece of a panel: the rounded rows at the piece's first group.
struct BlockPiece {
  RoundedRows x;
  const char* w = nullptr;
  int64_t steps = 0;
  bool first = false;  // the piece begins at depth 0, so results begin with zero
  const char* next = nullptr;
  int64_t next_lines = 0;  // fetched at each step
};

// Fetches a step's part of the next piece. A panel that is read as it is stored is fetched
// kAheadBytes ahead.
template <StepForm kForm>
HWY_INLINE void fetch_part(const BlockPiece& piece, int64_t step, const char* w) {
  if constexpr (is_unpacked(kForm)) {
    const char* next = piece.next + step * piece.next_lines * kLine;
    for (int64_t line = 0; line < piece.next_lines; ++line) {
      _mm_prefetch(next + line * kLine, _MM_HINT_T0);
    }
  } else {
    for (int64_t at = 0; at < bytes_of_step(kForm); at += kLine) {
      _mm_prefetch(w + kAheadBytes + at, _MM_HINT_T0);
    }
  }
}

// A quad of depths of half a step's columns.
template <int kRows>
HWY_INLINE void multiply_quad(const int8_t* x, __m512i quad, int64_t half,
                              __m512i (&sums)[kRows][2]) {
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    int32_t four = 0;
    std::memcpy(&four, x + r * kGroup, sizeof four);
    sums[r][half] = _mm512_dpbusd_epi32(sums[r][half], quad, _mm512_set1_epi32(four));
  }
}

template <StepForm kForm, int kRows>
HWY_INLINE void multiply_half(const int8_t* x, const char* w, int64_t half,
                              __m512i (&sums)[kRows][2]) {
#pragma GCC unroll 4
  for (int64_t two = 0; two < kQuads / 2; ++two, x += 8) {
    const TwoQuads loaded = load_quads<kForm>(w, half, two);
    multiply_quad<kRows>(x, loaded.quads[0], half, sums);
    multiply_quad<kRows>(x + 4, loaded.quads[1], half, sums);
  }
}

// Both halves of a step. int8 weights as they are stored are taken line by line: with the halves in
// turn, whose lines are 512 bytes apart, they come from memory at half the speed. For the other
// forms x is read once.
template <StepForm kForm, int kRows>
HWY_INLINE void multiply_step(const int8_t* x, const char* w, __m512i (&sums)[kRows][2]) {
  if constexpr (kForm == StepForm::kInt8) {
    multiply_half<kForm, kRows>(x, w, 0, sums);
    multiply_half<kForm, kRows>(x, w, 1, sums);
    return;
  }
#pragma GCC unroll 4
  for (int64_t two = 0; two < kQuads / 2; ++two, x += 8) {
    const TwoQuads left = load_quads<kForm>(w, 0, two);
    const TwoQuads right = load_quads<kForm>(w, 1, two);
    multiply_quad<kRows>(x, left.quads[0], 0, sums);
    multiply_quad<kRows>(x, right.quads[0], 1, sums);
    multiply_quad<kRows>(x + 4, left.quads[1], 0, sums);
    multiply_quad<kRows>(x + 4, right.quads[1], 1, sums);
  }
}

// results += scales * the rows' scales * sums, + minima * the rows' sums. `at`: the index of the
// first row's group.
template <StepForm kForm, int kRows>
HWY_INLINE void add_group(const RoundedRows& x, int64_t at, const char* step,
                          const __m512i (&sums)[kRows][2], __m512 (&results)[kRows][2]) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const __m512 scales = load_numbers<kForm>(step, half, GroupNumbers::kScales);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m512 both = _mm512_mul_ps(scales, _mm512_set1_ps(x.scales[at + r]));
      results[r][half] = _mm512_fmadd_ps(both, _mm512_cvtepi32_ps(sums[r][half]), results[r][half]);
    }
    if constexpr (with_minima(kForm)) {
      const __m512 minima = load_numbers<kForm>(step, half, GroupNumbers::kMinima);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        results[r][half] =
            _mm512_fmadd_ps(minima, _mm512_set1_ps(x.sums[at + r]), results[r][half]);
      }
    }
  }
}

template <StepForm kForm, int kRows>
HWY_NOINLINE void multiply_bytes(const BlockPiece& piece, float* c) {
  __m512 results[kRows][2];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    results[r][0] = piece.first ? _mm512_setzero_ps() : _mm512_load_ps(c + r * kRowSums);
    results[r][1] = piece.first ? _mm512_setzero_ps() : _mm512_load_ps(c + r * kRowSums + 16);
  }
  const char* w = piece.w;
  for (int64_t step = 0; step < piece.steps; ++step, w += bytes_of_step(kForm)) {
    const int64_t at = step * kRows;
    __m512i sums[kRows][2];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = sums[r][1] = _mm512_set1_epi32(piece.x.starts[at + r]);
    }
    fetch_part<kForm>(piece, step, w);
    multiply_step<kForm, kRows>(piece.x.values + at * kGroup, w, sums);
    add_group<kForm, kRows>(piece.x, at, w, sums, results);
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    _mm512_store_ps(c + r * kRowSums, results[r][0]);
    _mm512_store_ps(c + r * kRowSums + 16, results[r][1]);
  }
}

template <StepForm kForm>
void multiply_block_of(int64_t rows, const BlockPiece& piece, float* c) {
  switch (rows) {
    case 1:
      return multiply_bytes<kForm, 1>(piece, c);
    case 2:
      return multiply_bytes<kForm, 2>(piece, c);
    case 3:
      return multiply_bytes<kForm, 3>(piece, c);
    case 4:
      return multiply_bytes<kForm, 4>(piece, c);
    case 5:
      return multiply_bytes<kForm, 5>(piece, c);
    default:
      return multiply_bytes<kForm, 6>(piece, c);
  }
}

// The rows of a set with one panel, whose results go to c. `next`: the weights after it.
struct BytePanel {
  const RoundedRows* x = nullptr;
  int64_t rows = 0;
  int64_t steps = 0;
  const char* w = nullptr;
  const char* next = nullptr;
  char* unpacked = nullptr;
  float* c = nullptr;
};

// By the form of the weights in memory.
template <StepForm kForm>
void multiply_panel(const BytePanel& panel) {
  const int64_t blocks = divide_up(panel.rows, kByteBlockRows);
  if (blocks == 1) {
    multiply_block_of<kForm>(
        panel.rows, {.x = *panel.x, .w = panel.w, .steps = panel.steps, .first = true}, panel.c);
    return;
  }
  constexpr StepForm kUnpackedForm =
      with_minima(kForm) ? StepForm::kUnpackedWithMinima : StepForm::kUnpacked;
  constexpr int64_t kBytes = bytes_of_step(kForm);
  for (int64_t step = 0; step < panel.steps; step += kPieceSteps) {
    BlockPiece piece{.w = panel.unpacked,
                     .steps = std::min(kPieceSteps, panel.steps - step),
                     .first = step == 0};
    unpack_steps<kForm>(panel.w + step * kBytes, piece.steps, panel.unpacked);
    const int64_t end = step + piece.steps;
    const char* after = end < panel.steps ? panel.w + end * kBytes : panel.next;
    const int64_t lines = std::min(kPieceSteps, panel.steps) * kBytes / kLine;
    piece.next_lines = divide_up(lines, blocks * piece.steps);
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t begin = block_begin(block, panel.rows);
      const int64_t count = block_begin(block + 1, panel.rows) - begin;
      piece.x = panel.x->from(begin * panel.steps + step * count);
      piece.next = after + block * piece.steps * piece.next_lines * kLine;
      multiply_block_of<kUnpackedForm>(count, piece, panel.c + begin * kRowSums);
    }
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
  const auto multiply = args.w.quantization == Quantization::kInt8 ? multiply_panel<StepForm::kInt8>
                        : args.w.quantization == Quantization::kInt4
                            ? multiply_panel<StepForm::kInt4>
                            : multiply_panel<StepForm::kInt4Symmetric>;
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
                .unpacked = own.unpacked,
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
