// Paged attention over bf16 KV on the matrix unit.
//
// Scores are Q K^T and outputs P V, both with the left operand split into two bf16, the rounded
// value and the rounded rest, in two products: 17 bits of q and of the weights instead of 8. K and
// V lie in memory as the unit takes them (kv_layout.h), and are read in place.
//
// Queries (rows x heads of one kv head) form groups of 16, one tile's rows; a pass takes two groups
// through a split, so that each load of K or V serves two. The unit treats a tile's rows one by one
// and the order of the products of one row (dims and tokens ascending in steps of 32, high before
// low) is the same in every pass, so a row's result never depends on the rows beside it. Tokens
// that a row does not attend to get a weight of 0; V that a row must not see and that is not finite
// is kept from it by copies (see ValueUnits).
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

#include "hwy/highway.h"
#include "kernels/amx/amx.h"
#include "kernels/amx/attention_trip.h"
#include "kernels/amx/tiles.h"
#include "kernels/attention_partial.h"
#include "kernels/exp.h"
#include "kernels/portable/portable.h"

// gcc 12 takes the operands that its own intrinsics leave undefined for uninitialized variables.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,amx-tile,amx-bf16")
namespace tandem::kernels::amx {

namespace {

constexpr int64_t kPassGroups = 2;
constexpr int64_t kPassQueries = kPassGroups * kTileRows;
constexpr int64_t kUnitTokens = 32;  // a step of the products with V
constexpr int64_t kSplitUnits = kSplitTokens / kUnitTokens;
constexpr int64_t kScoreStride = kSplitTokens + 16;  // an odd number of cache lines

// The queries of a task that share a way through its splits, and the workspace.
struct Tile {
  int64_t queries = 0;
  int64_t groups = 0;
  TokenRange tokens[kTileQueries] = {};  // of each query; begins and ends never decrease
  BFloat16* q = nullptr;                 // [group][32 dims][high, low][16][32]
  float* scores = nullptr;      // of a pass: [kPassQueries, kScoreStride]; then, where a unit's 32
                                // scores were, 32 weights' high parts and 32 low parts
  float* state = nullptr;       // [kTileQueries, record]
  float* record = nullptr;      // [kTileQueries, record], of a split
  std::byte* values = nullptr;  // [kSplitUnits] copies of V, see ValueUnits
  decltype(Kernels::fold) fold = nullptr;
  decltype(Kernels::write_attended) write_attended = nullptr;
};

int64_t unit_value_bytes(const KvLayout& layout) {
  return kUnitTokens * layout.padded_head_dim * int64_t{sizeof(BFloat16)};
}
int64_t query_bytes(const KvLayout& layout) {
  return kTileQueries * layout.padded_head_dim * 2 * int64_t{sizeof(BFloat16)};
}

// Tiles 0-3 are sums, 4 and 5 hold K or V, 6 and 7 queries or weights of up to `rows` rows.
void configure(int64_t rows) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = static_cast<uint8_t>(tile == 4 || tile == 5 ? kTileRows : rows);
    config.bytes_per_row[tile] = kTileRowBytes;
  }
  finish_config(&config);
  _tile_loadconfig(&config);
}

// 2^x for x <= 0 with an error of 4e-7; below 2^kLowest 0, so that no part of a weight is denormal.
// NaN stays NaN. Lanes outside `wanted` are 0.
constexpr float kLowest = -100.0F;
HWY_INLINE __m512 exp2_of(__m512 x, __mmask16 wanted) {
  const __mmask16 kept = _mm512_mask_cmp_ps_mask(wanted, x, _mm512_set1_ps(kLowest), _CMP_NLT_UQ);
  const __m512 magic = _mm512_set1_ps(kExpRoundMagic);
  const __m512 shifted = _mm512_add_ps(x, magic);  // its lowest bits: x to the nearest integer
  const __m512 f = _mm512_sub_ps(x, _mm512_sub_ps(shifted, magic));
  __m512 p = _mm512_set1_ps(1.11255077e-3F);  // least relative error for |f| <= 1/2 and p(0) = 1
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.66628252e-3F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.55740047e-2F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.40223507e-1F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.93142831e-1F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0F));
  const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_castsi512_ps(_mm512_maskz_add_epi32(kept, _mm512_castps_si512(p), exponent));
}

// Rounds to 8 bits, ties away from zero; the bits below stay as they fall.
HWY_INLINE __m512i rounded(__m512 x) {
  return _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
}
// The upper halves of 32 words.
HWY_INLINE __m512i upper_halves(__m512i first, __m512i second) {
  const __m512i odd =
      _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                       25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  return _mm512_permutex2var_epi16(first, odd, second);
}

// 32 fp32 as the sum of 32 bf16 at `high` and 32 at `low`; low's own rest is lost.
HWY_INLINE void store_high_low(__m512 first, __m512 second, void* high, void* low) {
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
  const __m512i first_high = rounded(first);
  const __m512i second_high = rounded(second);
  const __m512 first_low =
      _mm512_sub_ps(first, _mm512_castsi512_ps(_mm512_and_si512(first_high, mask)));
  const __m512 second_low =
      _mm512_sub_ps(second, _mm512_castsi512_ps(_mm512_and_si512(second_high, mask)));
  _mm512_store_si512(high, upper_halves(first_high, second_high));
  _mm512_store_si512(low, upper_halves(rounded(first_low), rounded(second_low)));
}

// Spreads fetching over the tile instructions of a phase: a few lines after each, for tile loads
// that follow many prefetches wait for all of them.
class Pace {
 public:
  // `end`: lines in all that the phase's `points` ask for.
  Pace(Ahead& ahead, int64_t end, int64_t points)
      : ahead_(ahead), end_(end), step_(points), next_(end) {
    const int64_t lines = end - ahead.fetched();
    if (lines > 0) {
      next_ = ahead.fetched();
      step_ = (lines + points - 1) / points;
    }
  }
  explicit Pace(Ahead& ahead) : Pace(ahead, 0, 1) {}  // nothing to fetch

  HWY_INLINE void go_on() {
    if (next_ < end_) {
      next_ = std::min(next_ + step_, end_);
      ahead_.fetch_to(next_);
    }
  }

 private:
  Ahead& ahead_;
  const int64_t end_;
  int64_t step_;
  int64_t next_;
};

// Scores of 32 tokens for kGroups groups. `stride`: bytes from one pair of dims to the next.
template <int kGroups>
HWY_INLINE void score_unit(const char* key, int64_t stride, const char* q, int64_t steps,
                           float* scores, Pace& pace) {
  const int64_t group_bytes = steps * 2 * kTileBytes;
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kGroups > 1) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t step = 0; step < steps; ++step, key += kTileRows * stride, q += 2 * kTileBytes) {
    _tile_loadd(6, q, kTileRowBytes);
    _tile_loadd(4, key, stride);
    _tile_dpbf16ps(0, 6, 4);
    pace.go_on();
    _tile_loadd(7, q + kTileBytes, kTileRowBytes);
    _tile_dpbf16ps(0, 7, 4);
    pace.go_on();
    _tile_loadd(5, key + kTileRowBytes, stride);
    _tile_dpbf16ps(1, 6, 5);
    pace.go_on();
    _tile_dpbf16ps(1, 7, 5);
    pace.go_on();
    if constexpr (kGroups > 1) {
      _tile_loadd(6, q + group_bytes, kTileRowBytes);
      _tile_dpbf16ps(2, 6, 4);
      _tile_loadd(7, q + group_bytes + kTileBytes, kTileRowBytes);
      _tile_dpbf16ps(2, 7, 4);
      _tile_dpbf16ps(3, 6, 5);
      _tile_dpbf16ps(3, 7, 5);
    }
  }
  constexpr int64_t kStride = kScoreStride * 4;
  _tile_stored(0, scores, kStride);
  _tile_stored(1, scores + 16, kStride);
  if constexpr (kGroups > 1) {
    _tile_stored(2, scores + kTileRows * kScoreStride, kStride);
    _tile_stored(3, scores + kTileRows * kScoreStride + 16, kStride);
  }
}
constexpr int64_t kScorePoints = 4;  // of a step of 32 dims

// The tokens of a unit that lie in the range, as bits.
HWY_INLINE uint32_t unit_mask(const TokenRange& tokens, int64_t unit) {
  const int64_t begin = std::clamp<int64_t>(tokens.begin - unit * kUnitTokens, 0, kUnitTokens);
  const int64_t end = std::clamp<int64_t>(tokens.end - unit * kUnitTokens, 0, kUnitTokens);
  return static_cast<uint32_t>((uint64_t{1} << end) - 1) &
         ~static_cast<uint32_t>((uint64_t{1} << begin) - 1);
}

// The units [begin, end) of a query's scores, of which [full_begin, full_end) lie in its range.
struct QueryUnits {
  QueryUnits(const TokenRange& range, int64_t from, int64_t to)
      : tokens(range),
        begin(from),
        full_begin(std::clamp((range.begin + kUnitTokens - 1) / kUnitTokens, from, to)),
        full_end(std::clamp(range.end / kUnitTokens, full_begin, to)),
        end(to) {}
  TokenRange tokens;
  int64_t begin;
  int64_t full_begin;
  int64_t full_end;
  int64_t end;
};

constexpr uint32_t kAllTokens = ~0U;
HWY_INLINE __m512 unit_max(__m512 max, const float* scores, uint32_t mask) {
  const auto first = static_cast<__mmask16>(mask);
  const auto second = static_cast<__mmask16>(mask >> 16);
  max = _mm512_mask_max_ps(max, first, max, _mm512_load_ps(scores));
  return _mm512_mask_max_ps(max, second, max, _mm512_load_ps(scores + 16));
}

// Scores to weights; returns the sums.
HWY_INLINE __m512 unit_weights(float* scores, __m512 max, __m512 sums, uint32_t mask) {
  const __m512 first =
      exp2_of(_mm512_sub_ps(_mm512_load_ps(scores), max), static_cast<__mmask16>(mask));
  const __m512 second =
      exp2_of(_mm512_sub_ps(_mm512_load_ps(scores + 16), max), static_cast<__mmask16>(mask >> 16));
  store_high_low(first, second, scores, scores + 16);
  return _mm512_add_ps(sums, _mm512_add_ps(first, second));
}

// The largest of one query's scores.
float max_of_scores(const float* scores, const QueryUnits& units) {
  __m512 max = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  for (int64_t unit = units.begin; unit < units.full_begin; ++unit) {
    max = unit_max(max, scores + unit * kUnitTokens, unit_mask(units.tokens, unit));
  }
  for (int64_t unit = units.full_begin; unit < units.full_end; ++unit) {
    max = unit_max(max, scores + unit * kUnitTokens, kAllTokens);
  }
  for (int64_t unit = units.full_end; unit < units.end; ++unit) {
    max = unit_max(max, scores + unit * kUnitTokens, unit_mask(units.tokens, unit));
  }
  return _mm512_reduce_max_ps(max);
}

// Turns one query's scores (in powers of 2) into weights, 0 for tokens outside its range; returns
// their sum.
float weights_from_scores(float* scores, const QueryUnits& units, float largest) {
  const __m512 max = _mm512_set1_ps(largest);
  __m512 sums = _mm512_setzero_ps();
  for (int64_t unit = units.begin; unit < units.full_begin; ++unit) {
    sums = unit_weights(scores + unit * kUnitTokens, max, sums, unit_mask(units.tokens, unit));
  }
  for (int64_t unit = units.full_begin; unit < units.full_end; ++unit) {
    sums = unit_weights(scores + unit * kUnitTokens, max, sums, kAllTokens);
  }
  for (int64_t unit = units.full_end; unit < units.end; ++unit) {
    sums = unit_weights(scores + unit * kUnitTokens, max, sums, unit_mask(units.tokens, unit));
  }
  return _mm512_reduce_add_ps(sums);
}

// Weighted V of the units [begin, end), of kDims * 16 dims, for kGroups groups (kGroups * kDims <=
// 4). `values`: V of each unit at the first dim.
template <int kGroups, int kDims>
HWY_INLINE void weigh_unit(const char* weights, const char* value, int64_t stride, Pace& pace) {
  constexpr int64_t kStride = kScoreStride * 4;
  _tile_loadd(6, weights, kStride);
  _tile_loadd(4, value, stride);
  _tile_dpbf16ps(0, 6, 4);
  pace.go_on();
  _tile_loadd(7, weights + kTileRowBytes, kStride);
  _tile_dpbf16ps(0, 7, 4);
  pace.go_on();
  _tile_loadd(5, value + kTileRowBytes, stride);
  _tile_dpbf16ps(1, 6, 5);
  pace.go_on();
  _tile_dpbf16ps(1, 7, 5);
  pace.go_on();
  if constexpr (kGroups > 1) {
    static_assert(kDims == 2);
    _tile_loadd(6, weights + kTileRows * kStride, kStride);
    _tile_dpbf16ps(2, 6, 4);
    _tile_loadd(7, weights + kTileRows * kStride + kTileRowBytes, kStride);
    _tile_dpbf16ps(2, 7, 4);
    _tile_dpbf16ps(3, 6, 5);
    _tile_dpbf16ps(3, 7, 5);
  } else if constexpr (kDims > 2) {
    _tile_loadd(4, value + 2 * kTileRowBytes, stride);
    _tile_dpbf16ps(2, 6, 4);
    pace.go_on();
    _tile_dpbf16ps(2, 7, 4);
    pace.go_on();
    _tile_loadd(5, value + 3 * kTileRowBytes, stride);
    _tile_dpbf16ps(3, 6, 5);
    pace.go_on();
    _tile_dpbf16ps(3, 7, 5);
    pace.go_on();
  }
}
constexpr int64_t kWeighPoints = 2;  // of 32 tokens and 16 dims

template <int kGroups, int kDims>
HWY_INLINE void store_values(float* values, int64_t record_floats) {
  const int64_t stride = record_floats * 4;
  _tile_stored(0, values, stride);
  _tile_stored(1, values + 16, stride);
  if constexpr (kGroups > 1) {
    _tile_stored(2, values + kTileRows * record_floats, stride);
    _tile_stored(3, values + kTileRows * record_floats + 16, stride);
  } else if constexpr (kDims > 2) {
    _tile_stored(2, values + 32, stride);
    _tile_stored(3, values + 48, stride);
  }
}

HWY_INLINE void clear_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// Where V of a split's units lies. A unit that holds tokens outside the range is copied with these
// tokens as zeros: memory that was never written may hold NaN, and 0 * NaN is not 0.
struct ValueUnits {
  const char* at[kSplitUnits] = {};
  bool finite = true;  // no copied unit has a NaN or infinity within the range
};

// Copies 32 tokens of V, those outside `mask` as zeros; true when all are finite.
bool copy_values(const char* from, int64_t width, uint32_t mask, char* to) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  __mmask32 infinite = 0;
  for (int64_t pair = 0; pair < kUnitTokens / 2; ++pair) {
    const uint32_t own = mask >> (2 * pair) & 3;
    const __m512i kept = _mm512_set1_epi32(
        static_cast<int>(((own & 1) != 0 ? 0xffffU : 0U) | ((own & 2) != 0 ? 0xffff0000U : 0U)));
    for (int64_t dim = 0; dim < width; dim += 16, from += kTileRowBytes, to += kTileRowBytes) {
      const __m512i value = _mm512_and_si512(_mm512_loadu_si512(from), kept);
      infinite |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(value, exponent), exponent);
      _mm512_store_si512(to, value);
    }
  }
  return infinite == 0;
}

// One split for one tile.
class SplitPass {
 public:
  // `ahead_base`: lines fetched before the tile's first one.
  SplitPass(const AttentionArgs& args, const AttentionTask& task, const Tile& tile, Ahead& ahead,
            int64_t ahead_base)
      : args_(args),
        layout_(args.layout),
        block_table_(args.slices[task.slice].block_table),
        kv_head_(task.kv_head),
        tile_(tile),
        ahead_(ahead),
        steps_(args.layout.padded_head_dim / 32),
        record_floats_(partial_record_floats(args.layout)),
        ahead_base_(ahead_base) {}

  // Fills the tile's records of all queries that have tokens in the split; may spoil the others'.
  void run(int64_t split) {
    split_ = split;
    for (int64_t i = 0; i < tile_.queries; ++i) {
      ranges_[i] = in_split(tile_.tokens[i], split);
    }
    find_units(0, tile_.queries);
    ahead_budget_ = (end_unit_ - begin_unit_) * layout_.padded_head_dim;  // lines of K, and of V
    for (int64_t group = 0; group < tile_.groups; group += kPassGroups) {
      const int64_t groups = std::min(kPassGroups, tile_.groups - group);
      const int64_t first = group * kTileRows;
      const int64_t end = std::min(first + groups * kTileRows, tile_.queries);
      find_units(first, end);
      if (begin_unit_ >= end_unit_) {
        continue;
      }
      leads_ = ahead_budget_ > 0;
      if (groups == 1) {
        run_pass<1>(group, first, end);
      } else {
        run_pass<2>(group, first, end);
      }
      if (leads_) {
        ahead_base_ += 2 * ahead_budget_;
        ahead_budget_ = 0;
      }
    }
  }

 private:
  [[nodiscard]] const TokenRange& tokens_of(int64_t query) const { return ranges_[query]; }

  // The units that the queries [first, end) have tokens in.
  void find_units(int64_t first, int64_t end) {
    begin_unit_ = kSplitUnits;
    end_unit_ = 0;
    for (int64_t i = first; i < end; ++i) {
      const TokenRange tokens = tokens_of(i);
      if (!tokens.empty()) {
        begin_unit_ = std::min(begin_unit_, tokens.begin / kUnitTokens);
        end_unit_ = std::max(end_unit_, (tokens.end + kUnitTokens - 1) / kUnitTokens);
      }
    }
  }

  [[nodiscard]] const char* key_of(int64_t unit) const {
    const int64_t token = split_ * kSplitTokens + unit * kUnitTokens;
    const int64_t id = block_table_[token / layout_.block_tokens];
    return reinterpret_cast<const char*>(args_.kv) + layout_.key_offset(id, args_.layer, kv_head_) +
           layout_.key_element(token % layout_.block_tokens, 0) * int64_t{sizeof(BFloat16)};
  }
  [[nodiscard]] const char* value_of(int64_t unit) const {
    const int64_t token = split_ * kSplitTokens + unit * kUnitTokens;
    const int64_t id = block_table_[token / layout_.block_tokens];
    return reinterpret_cast<const char*>(args_.kv) +
           layout_.value_offset(id, args_.layer, kv_head_) +
           layout_.value_element(token % layout_.block_tokens, 0) * int64_t{sizeof(BFloat16)};
  }

  // The first pass through a split fetches as many lines as it uses: those of K during the scores,
  // of V for a quarter during the weights, so that memory is never idle. `end_lines`: of the split,
  // at the end of a phase of `points`.
  [[nodiscard]] Pace pace_to(int64_t end_lines, int64_t points) {
    return leads_ ? Pace(ahead_, ahead_base_ + ahead_.distance() + end_lines, points)
                  : Pace(ahead_);
  }

  template <int kGroups>
  void run_pass(int64_t group, int64_t first, int64_t end) {
    const int64_t units = end_unit_ - begin_unit_;
    const char* q = reinterpret_cast<const char*>(tile_.q) + group * steps_ * 2 * kTileBytes;
    const int64_t key_stride = layout_.block_tokens * 2 * int64_t{sizeof(BFloat16)};
    memory_barrier();
    Pace score_pace = pace_to(ahead_budget_, units * steps_ * kScorePoints);
    for (int64_t unit = begin_unit_; unit < end_unit_; ++unit) {
      score_unit<kGroups>(key_of(unit), key_stride, q, steps_, tile_.scores + unit * kUnitTokens,
                          score_pace);
    }
    memory_barrier();
    // All maxima first: a row's weights wait for its maximum, other rows' maxima need not.
    float maxima[kPassQueries];
    for (int64_t i = first; i < end; ++i) {
      maxima[i - first] = max_of_scores(tile_.scores + (i - first) * kScoreStride,
                                        QueryUnits(tokens_of(i), begin_unit_, end_unit_));
    }
    constexpr float kLn2 = 0.693147181F;
    Pace weights_pace = pace_to(ahead_budget_ + ahead_budget_ / 4, end - first);
    for (int64_t i = first; i < end; ++i) {
      weights_pace.go_on();
      float* record = tile_.record + i * record_floats_;
      record[kPartialMax] = maxima[i - first] * kLn2;
      record[kPartialSum] =
          weights_from_scores(tile_.scores + (i - first) * kScoreStride,
                              QueryUnits(tokens_of(i), begin_unit_, end_unit_), maxima[i - first]);
    }
    const ValueUnits values = find_values(first, end);
    if (values.finite) {
      weigh<kGroups>(values, tile_.scores, tile_.record + first * record_floats_);
    } else {
      weigh_apart(first, end);
    }
  }

  // V of the units for the queries [first, end) together.
  ValueUnits find_values(int64_t first, int64_t end) const {
    // Ranges of consecutive rows: every query covers what the first and the last one cover.
    const QueryUnits common({tokens_of(end - 1).begin, tokens_of(first).end}, begin_unit_,
                            end_unit_);
    ValueUnits values;
    for (int64_t unit = begin_unit_; unit < end_unit_; ++unit) {
      if (unit >= common.full_begin && unit < common.full_end) {
        values.at[unit] = value_of(unit);
        continue;
      }
      uint32_t some = 0;
      uint32_t every = ~0U;
      for (int64_t i = first; i < end; ++i) {
        const uint32_t mask = unit_mask(tokens_of(i), unit);
        some |= mask;
        every &= mask;
      }
      char* copy = reinterpret_cast<char*>(tile_.values) + unit * unit_value_bytes(layout_);
      const bool finite = copy_values(value_of(unit), layout_.padded_head_dim, some, copy);
      values.finite = values.finite && (finite || some == every);
      values.at[unit] = copy;
    }
    return values;
  }

  // Records' weighted V, from the weights at `weights`.
  template <int kGroups>
  void weigh(const ValueUnits& values, const float* weights, float* records) {
    constexpr int kDims = kGroups > 1 ? 2 : 4;
    const int64_t width = layout_.padded_head_dim;
    const int64_t units = end_unit_ - begin_unit_;
    Pace pace = pace_to(2 * ahead_budget_, width / 16 * units * kWeighPoints);
    memory_barrier();
    for (int64_t dim = 0; dim < width; dim += kDims * 16) {
      clear_sums();
      const bool half = width - dim < kDims * 16;
      for (int64_t unit = begin_unit_; unit < end_unit_; ++unit) {
        const char* own = reinterpret_cast<const char*>(weights + unit * kUnitTokens);
        const char* value = values.at[unit] + dim * 4;
        if (half) {
          weigh_unit<1, 2>(own, value, width * 4, pace);
        } else {
          weigh_unit<kGroups, kDims>(own, value, width * 4, pace);
        }
      }
      if (half) {
        store_values<1, 2>(records + kPartialValues + dim, record_floats_);
      } else {
        store_values<kGroups, kDims>(records + kPartialValues + dim, record_floats_);
      }
    }
    memory_barrier();
  }

  // The same query by query, each with V of its own tokens alone.
  void weigh_apart(int64_t first, int64_t end) {
    leads_ = false;
    float* results = tile_.scores + kPassQueries * kScoreStride;
    for (int64_t i = first; i < end; ++i) {
      const int64_t row = (i - first) % kTileRows;
      const float* weights = tile_.scores + (i - first - row) * kScoreStride;
      weigh<1>(find_values(i, i + 1), weights, results);
      std::memcpy(tile_.record + i * record_floats_ + kPartialValues,
                  results + row * record_floats_ + kPartialValues,
                  static_cast<size_t>(layout_.padded_head_dim) * sizeof(float));
    }
  }

  const AttentionArgs& args_;
  const KvLayout& layout_;
  const int32_t* block_table_;
  int64_t kv_head_;
  const Tile& tile_;
  Ahead& ahead_;
  int64_t steps_;  // of 32 dims
  int64_t record_floats_;
  int64_t split_ = 0;
  TokenRange ranges_[kTileQueries];  // of each query in the split
  int64_t begin_unit_ = 0;
  int64_t end_unit_ = 0;
  int64_t ahead_base_;        // lines of K and V of the splits before
  int64_t ahead_budget_ = 0;  // lines of K (and of V) in this split, 0 when they are fetched
  bool leads_ = false;
};

int64_t score_floats(const KvLayout& layout) {
  return kPassQueries * kScoreStride + kTileRows * partial_record_floats(layout);
}

int64_t attend_scratch(const KvLayout& layout) {
  return query_bytes(layout) + kSplitUnits * unit_value_bytes(layout) +
         (score_floats(layout) + 2 * kTileQueries * partial_record_floats(layout)) *
             int64_t{sizeof(float)};
}

// The trip's queries.
void load_queries(const AttentionArgs& args, const AttentionTask& task, const Trip& trip,
                  Tile& tile) {
  const int64_t width = args.layout.padded_head_dim;
  const int64_t group = query_group(args);
  const int64_t steps = width / 32;
  const __m512 scale = _mm512_set1_ps(args.scale * kExpLog2e);
  for (int64_t i = 0; i < tile.groups * kTileRows; ++i) {
    char* to = reinterpret_cast<char*>(tile.q) + i / kTileRows * steps * 2 * kTileBytes +
               i % kTileRows * kTileRowBytes;
    if (i >= tile.queries) {  // no arithmetic on what is not there
      for (int64_t part = 0; part < 2 * steps; ++part) {
        std::memset(to + part * kTileBytes, 0, kTileRowBytes);
      }
      continue;
    }
    const int64_t row = task.row_begin + (trip.first + i) / group;
    const int64_t head = task.kv_head * group + (trip.first + i) % group;
    const float* q = args.q + (row * args.heads + head) * width;
    for (int64_t step = 0; step < steps; ++step, to += 2 * kTileBytes) {
      store_high_low(_mm512_mul_ps(_mm512_loadu_ps(q + step * 32), scale),
                     _mm512_mul_ps(_mm512_loadu_ps(q + step * 32 + 16), scale), to,
                     to + kTileBytes);
    }
    tile.tokens[i] = row_tokens(args, args.slices[task.slice], row);
  }
}

void keep_records(const AttentionArgs& args, const AttentionTask& task, const Trip& trip,
                  const Tile& tile, int64_t split) {
  const int64_t record_floats = partial_record_floats(args.layout);
  const auto record_bytes = static_cast<size_t>(record_floats) * sizeof(float);
  for (int64_t i = 0; i < tile.queries; ++i) {
    if (in_split(tile.tokens[i], split).empty()) {
      continue;
    }
    const float* record = tile.record + i * record_floats;
    if (task.partial_offset >= 0) {
      std::memcpy(args.partials + task.partial_offset +
                      (split - task.split_begin) * split_floats(args, task.row_count) +
                      (trip.first + i) * record_floats,
                  record, record_bytes);
    } else if (tile.tokens[i].begin / kSplitTokens == split) {  // its first one
      std::memcpy(tile.state + i * record_floats, record, record_bytes);
    } else {
      tile.fold(tile.state + i * record_floats, record, args.layout.padded_head_dim);
    }
  }
}

void attend_trip(const AttentionArgs& args, const AttentionTask& task, const Trip& trip,
                 const Tile& tile, Ahead& ahead) {
  const int64_t group = query_group(args);
  SplitPass pass(args, task, tile, ahead, ahead.begin_trip(trip));
  for (int64_t split = trip.begin_split; split < trip.end_split; ++split) {
    pass.run(split);
    keep_records(args, task, trip, tile, split);
  }
  for (int64_t i = 0; task.partial_offset < 0 && i < tile.queries; ++i) {
    tile.write_attended(args, task.row_begin + (trip.first + i) / group,
                        task.kv_head * group + (trip.first + i) % group,
                        tile.state + i * partial_record_floats(args.layout));
  }
}

Kernels vector_kernels() {
  Kernels table;
  portable::fill_attention(Isa::kAvx512, table);
  return table;
}

void attend_on_tiles(const AttentionArgs& args, std::span<const AttentionTask> tasks,
                     void* scratch) {
  const Kernels vector = vector_kernels();
  Tile tile;
  auto* at = static_cast<std::byte*>(scratch);
  tile.q = reinterpret_cast<BFloat16*>(at);
  tile.values = at + query_bytes(args.layout);
  tile.scores = reinterpret_cast<float*>(tile.values + kSplitUnits * unit_value_bytes(args.layout));
  tile.state = tile.scores + score_floats(args.layout);
  tile.record = tile.state + kTileQueries * partial_record_floats(args.layout);
  tile.fold = vector.fold;
  tile.write_attended = vector.write_attended;
  Ahead ahead(args, tasks);
  int64_t rows = 0;
  for (Trip trip = trip_of(args, tasks, 0, 0); trip.task < std::ssize(tasks);
       trip = trip_after(args, tasks, trip)) {
    const AttentionTask& task = tasks[static_cast<size_t>(trip.task)];
    const int64_t wanted_rows = std::min(task_queries(args, task), kTileRows);
    if (wanted_rows != rows) {
      rows = wanted_rows;
      configure(rows);
    }
    tile.queries = trip.queries;
    tile.groups = (tile.queries + kTileRows - 1) / kTileRows;
    load_queries(args, task, trip, tile);
    attend_trip(args, task, trip, tile, ahead);
  }
  _tile_release();
}

bool fits_tiles(const AttentionArgs& args) {
  return args.layout.type == ElementType::kBF16 && args.layout.block_tokens % kUnitTokens == 0;
}

int64_t attend_scratch_bytes(const AttentionArgs& args) {
  return fits_tiles(args) ? attend_scratch(args.layout)
                          : vector_kernels().attend_scratch_bytes(args);
}

void attend(const AttentionArgs& args, std::span<const AttentionTask> tasks, void* scratch) {
  if (tasks.empty()) {
    return;
  }
  if (fits_tiles(args)) {
    attend_on_tiles(args, tasks, scratch);
  } else {
    vector_kernels().attend(args, tasks, scratch);
  }
}

}  // namespace

void fill_attention(Kernels& table) {
  table.attend_scratch_bytes = attend_scratch_bytes;
  table.attend = attend;
}

}  // namespace tandem::kernels::amx
HWY_POP_ATTRIBUTES
