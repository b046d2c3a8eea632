// The part that all families of products of bytes share: quantised weights times activations
// rounded to int8 (Activations::kInt8).
//
// Rows are rounded before any product, once for all panels if the caller prepares them, and lie in
// blocks whose rows alternate from step to step. All blocks of a set multiply a piece of a panel,
// which stays in the L1 cache, while parts of the next piece are fetched. Weights are stored with
// an offset that makes them unsigned; in families that multiply them so, sums begin with minus the
// offset times the sum of x. A result takes its groups in the order of depth, so a row never
// depends on its company.
//
// A family is a type with these static members; its functions may use instructions that others
// lack, so none of them is inlined here:
//   kPortable                       whose kernels store results and compute other products
//   kSetBytes                       of rounded rows, which stay in the L2 cache (three blocks of
//                                   long rows may be more)
//   group_bytes(quantization)       of the values of a rounded group
//   round_row(x, groups, quantization, count, to)
//                                   rounds a row; its group g goes to index g * count of `to`
//   multiply<Quantization, rows>(piece, c)
//                                   adds a block's products with a piece to c, [rows, 32]
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/flush_denormals.h"
#include "kernels/gemm.h"
#include "kernels/panel_layout.h"
#include "kernels/portable/portable.h"
#include "kernels/quantize.h"

namespace tandem::kernels::bytes {

inline constexpr int64_t kBlockRows = 6;  // whose sums registers hold
inline constexpr int64_t kSetRows = 16 * kBlockRows;
inline constexpr int64_t kLine = 64;
inline constexpr int64_t kPieceSteps = 12;    // 13 KB of int8, less than half of the L1 cache
inline constexpr int64_t kAheadBytes = 4096;  // fetched ahead for a single block of rows

// The rounded rows of a set. Row r of a block of `count` rows that begins at row `begin` has its
// group g at index begin * groups + g * count + r, its values at group_bytes times that.
struct RoundedRows {
  int8_t* values = nullptr;
  int64_t group_bytes = 0;
  float* scales = nullptr;
  float* sums = nullptr;      // RoundedGroup::element_sum
  int32_t* starts = nullptr;  // sums of products begin with them; a family has its own form

  // The rows and groups from index `at` on.
  [[nodiscard]] RoundedRows from(int64_t at) const {
    return {values + at * group_bytes, group_bytes, scales + at, sums + at, starts + at};
  }
};

// A weight plus this offset is an unsigned byte.
constexpr int32_t byte_offset(Quantization quantization) {
  return quantization == Quantization::kInt8            ? 128
         : quantization == Quantization::kInt4Symmetric ? 8
                                                        : 0;
}

// A block of rows with a piece of a panel: the rounded rows at the piece's first group.
struct BlockPiece {
  RoundedRows x;
  const char* w = nullptr;
  int64_t steps = 0;
  bool first = false;          // the piece begins at depth 0, so results begin with zero
  const char* next = nullptr;  // null: of a single block
  int64_t next_lines = 0;      // fetched at each step
};

// The rows of a set with one panel, whose results go to c. `next`: the weights after it.
struct BytePanel {
  const RoundedRows* x = nullptr;
  int64_t rows = 0;
  int64_t steps = 0;
  const char* w = nullptr;
  const char* next = nullptr;
  float* c = nullptr;
};

// Where the blocks of a set begin: their sizes differ by one row at most.
inline int64_t block_begin(int64_t block, int64_t rows) {
  return block * rows / divide_up(rows, kBlockRows);
}

// Fetches a step's part of the next piece, or, for a single block, kAheadBytes ahead.
template <Quantization kKind>
inline __attribute__((always_inline)) void fetch_part(const BlockPiece& piece, int64_t step,
                                                      const char* w) {
  if (piece.next != nullptr) {
    const char* next = piece.next + step * piece.next_lines * kLine;
    for (int64_t line = 0; line < piece.next_lines; ++line) {
      __builtin_prefetch(next + line * kLine, 0, 3);
    }
  } else {
    for (int64_t at = 0; at < panel_layout::step_bytes(kKind); at += kLine) {
      __builtin_prefetch(w + kAheadBytes + at, 0, 3);
    }
  }
}

// Divides one memory into parts that begin at cache lines. Without memory it only counts bytes.
class Parts {
 public:
  explicit Parts(void* memory) : base_(static_cast<char*>(memory)) {}
  template <class T>
  void take(T*& to, int64_t count) {
    to = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + bytes_);
    bytes_ += round_up(count * int64_t{sizeof(T)}, kLine);
  }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  char* base_;
  int64_t bytes_ = 0;
};

template <class Family>
class Gemm {
 public:
  static int64_t scratch_bytes(const GemmArgs& args) {
    return args.rows <= 0 ? 0 : divide_scratch(args, nullptr).bytes;
  }

  // The functions of these names in Kernels, for args.w.int8_products().
  static int64_t prepared_bytes(const GemmArgs& args) {
    Parts parts(nullptr);
    place_rows(args, std::max<int64_t>(args.rows, 0), parts);
    return parts.bytes();
  }

  static void prepare(const GemmArgs& args, int64_t row_begin, int64_t row_end, void* prepared) {
    if (row_begin >= row_end) {
      return;
    }
    const FlushDenormals as_in_products;
    const RoundedRows all = prepared_rows(args, prepared);
    const int64_t groups = args.w.k / kQuantizedGroup;
    const int64_t set_rows = set_rows_of(args);
    for (int64_t set = row_begin / set_rows * set_rows; set < row_end; set += set_rows) {
      round_rows(args, {.set = set, .begin = row_begin, .end = row_end}, all.from(set * groups));
    }
  }

  // As gemm of a table. args.w.int8_products().
  static void multiply(const GemmArgs& args, int64_t panel_begin, int64_t panel_end,
                       void* scratch) {
    if (args.rows <= 0 || panel_begin >= panel_end) {
      return;
    }
    const FlushDenormals
        flush_y_and_bias;  // as other families do; integer products have no denormals
    Scratch own = divide_scratch(args, scratch);
    const int64_t groups = args.w.k / kQuantizedGroup;
    const int64_t set_rows = set_rows_of(args);
    for (int64_t set = 0; set < args.rows; set += set_rows) {
      if (args.prepared != nullptr) {
        own.rows = prepared_rows(args, args.prepared).from(set * groups);
      } else {
        round_rows(args, {.set = set, .begin = set, .end = set + set_rows}, own.rows);
      }
      multiply_set(args, set, std::min(set_rows, args.rows - set), panel_begin, panel_end, own);
    }
  }

 private:
  // The rounded rows of a set, the results of a panel or of a pair.
  struct Scratch {
    RoundedRows rows;
    float* c = nullptr;
    int64_t bytes = 0;
  };

  // The rows [begin, end) of x that belong to the set which begins at row `set`.
  struct RowsOfSet {
    int64_t set = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };

  static int64_t set_rows_of(const GemmArgs& args) {
    const int64_t row_bytes = args.w.k / kQuantizedGroup * Family::group_bytes(args.w.quantization);
    const int64_t fit = Family::kSetBytes / row_bytes / kBlockRows * kBlockRows;
    const int64_t max_rows = std::clamp(fit, 3 * kBlockRows, kSetRows);
    return divide_up(args.rows, divide_up(args.rows, max_rows));
  }

  static RoundedRows place_rows(const GemmArgs& args, int64_t rows, Parts& parts) {
    const int64_t groups = rows * (args.w.k / kQuantizedGroup);
    RoundedRows to;
    to.group_bytes = Family::group_bytes(args.w.quantization);
    parts.take(to.values, groups * to.group_bytes);
    parts.take(to.scales, groups);
    parts.take(to.sums, groups);
    parts.take(to.starts, groups);
    return to;
  }

  // The rounded rows of all sets, one set after the other.
  static RoundedRows prepared_rows(const GemmArgs& args, const void* memory) {
    Parts parts(const_cast<void*>(memory));
    return place_rows(args, args.rows, parts);
  }

  static Scratch divide_scratch(const GemmArgs& args, void* memory) {
    const int64_t rows = set_rows_of(args);
    Parts parts(memory);
    Scratch scratch;
    parts.take(scratch.c, args.panel_unit() * rows * kPanelColumns);
    if (args.prepared == nullptr) {
      scratch.rows = place_rows(args, rows, parts);
    }
    scratch.bytes = parts.bytes();
    return scratch;
  }

  static void round_rows(const GemmArgs& args, const RowsOfSet& some, const RoundedRows& to) {
    const int64_t groups = args.w.k / kQuantizedGroup;
    const int64_t set_rows = std::min(set_rows_of(args), args.rows - some.set);
    for (int64_t block = 0; block < divide_up(set_rows, kBlockRows); ++block) {
      const int64_t begin = block_begin(block, set_rows);
      const int64_t count = block_begin(block + 1, set_rows) - begin;
      const int64_t first = std::max<int64_t>(0, some.begin - some.set - begin);
      const int64_t last = std::min(count, some.end - some.set - begin);
      for (int64_t row = first; row < last; ++row) {
        const auto* x =
            static_cast<const BFloat16*>(args.x) + (some.set + begin + row) * args.x_stride;
        Family::round_row(x, groups, args.w.quantization, count, to.from(begin * groups + row));
      }
    }
  }

  static void multiply_set(const GemmArgs& args, int64_t set, int64_t rows, int64_t panel_begin,
                           int64_t panel_end, const Scratch& own) {
    const int64_t panel_bytes = args.w.bytes() / args.w.panels();
    const auto* data = static_cast<const char*>(args.w.data);
    const int64_t unit = args.panel_unit();
    const auto multiply_any =
        args.w.quantization == Quantization::kInt8   ? multiply_panel<Quantization::kInt8>
        : args.w.quantization == Quantization::kInt4 ? multiply_panel<Quantization::kInt4>
                                                     : multiply_panel<Quantization::kInt4Symmetric>;
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      const int64_t next = panel + 1 < panel_end ? panel + 1 : panel_begin;
      const int64_t place = panel % unit;
      multiply_any({.x = &own.rows,
                    .rows = rows,
                    .steps = args.w.k / kQuantizedGroup,
                    .w = data + panel * panel_bytes,
                    .next = data + next * panel_bytes,
                    .c = own.c + place * rows * kPanelColumns});
      if (place + 1 == unit) {
        write_results(args, panel + 1 - unit, set, rows, own.c);
      }
    }
  }

  template <Quantization kKind>
  static void multiply_panel(const BytePanel& panel) {
    const int64_t blocks = divide_up(panel.rows, kBlockRows);
    if (blocks == 1) {
      multiply_block<kKind>(
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

  // All blocks with a piece of a panel.
  template <Quantization kKind>
  static void multiply_piece(const BytePanel& panel, int64_t step, BlockPiece piece) {
    const int64_t blocks = divide_up(panel.rows, kBlockRows);
    const char* next = piece.next;
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t begin = block_begin(block, panel.rows);
      const int64_t count = block_begin(block + 1, panel.rows) - begin;
      piece.x = panel.x->from(begin * panel.steps + step * count);
      piece.next = next + block * piece.steps * piece.next_lines * kLine;
      multiply_block<kKind>(count, piece, panel.c + begin * kPanelColumns);
    }
  }

  template <Quantization kKind>
  static void multiply_block(int64_t rows, const BlockPiece& piece, float* c) {
    switch (rows) {
      case 1:
        return Family::template multiply<kKind, 1>(piece, c);
      case 2:
        return Family::template multiply<kKind, 2>(piece, c);
      case 3:
        return Family::template multiply<kKind, 3>(piece, c);
      case 4:
        return Family::template multiply<kKind, 4>(piece, c);
      case 5:
        return Family::template multiply<kKind, 5>(piece, c);
      default:
        return Family::template multiply<kKind, 6>(piece, c);
    }
  }

  // The results of a panel, or of a pair of panels, go to y.
  static void write_results(const GemmArgs& args, int64_t panel, int64_t set, int64_t rows,
                            const float* c) {
    const portable::ResultRows result = portable::result_rows(Family::kPortable);
    for (int64_t row = 0; row < rows; ++row, c += kPanelColumns) {
      if (args.store == GemmStore::kSiluMul) {
        result.store_activated(args, c, c + rows * kPanelColumns, set + row,
                               panel / 2 * kPanelColumns);
      } else {
        result.store(args, c, set + row, panel * kPanelColumns);
      }
    }
  }
};

// The products of a table: Family computes the products of bytes, the portable kernels all others.
template <class Family>
class EitherGemm {
 public:
  static void fill(Kernels& table) {
    table.gemm_scratch_bytes = scratch_bytes;
    table.prepared_bytes = prepared_bytes;
    table.prepare = Gemm<Family>::prepare;  // nothing is prepared for other products
    table.gemm = multiply;
  }

 private:
  static int64_t prepared_bytes(const GemmArgs& args) {
    return args.w.int8_products() ? Gemm<Family>::prepared_bytes(args) : 0;
  }

  static int64_t scratch_bytes(const GemmArgs& args) {
    return args.w.int8_products() ? Gemm<Family>::scratch_bytes(args)
                                  : portable::gemm_of(Family::kPortable).gemm_scratch_bytes(args);
  }

  static void multiply(const GemmArgs& args, int64_t panel_begin, int64_t panel_end,
                       void* scratch) {
    if (args.w.int8_products()) {
      Gemm<Family>::multiply(args, panel_begin, panel_end, scratch);
    } else {
      portable::gemm_of(Family::kPortable).gemm(args, panel_begin, panel_end, scratch);
    }
  }
};

}  // namespace tandem::kernels::bytes
