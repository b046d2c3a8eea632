// Paged attention for every vector target.
//
// A tile of queries (rows x heads of one kv head) shares each pass over a split's K and V, and
// register blocks of up to kMaxQueries queries share each load. Scores need no sums across lanes: a
// vector holds tokens of one dimension of K. The order of the additions of one (row, head) is: dims
// 0, 1, 2, ... for a score, tokens 0, 1, 2, ... for a weighted V, lane by lane for the sum of
// weights; so neither the tile nor the register block can be seen in a result.
#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

#include "kernels/attention_partial.h"
#include "kernels/portable/portable.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/portable/attention.cc"
#include "kernels/portable/target.h"
#if TANDEM_PORTABLE_TARGET

#include "kernels/portable/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::kernels::portable::HWY_NAMESPACE {
namespace {

constexpr int64_t kTileQueries = 64;
constexpr int64_t kScoreStride = kSplitTokens + 16;  // off the power of two: cache sets

// Register block: kMaxQueries queries x kVectors vectors of accumulators, beside the loaded pairs.
// One pass covers 16 tokens or dims, 32 with AVX-512.
constexpr int kMaxQueries = HWY_TARGET == HWY_AVX3 ? 8 : 4;
constexpr int kVectors = kLanes >= 8 ? 2 : 4;
constexpr int64_t kCacheLine = 64;

// So few queries have too few sums to keep the multipliers busy: each waits for its own last
// product. They take twice as many tokens or dims at a time.
constexpr int kFewQueries = HWY_TARGET == HWY_AVX3 ? 4 : 0;

// Loads two vectors: of dims 2p and 2p+1 of K for consecutive tokens, or of tokens 2p and 2p+1 of V
// for consecutive dims. `stride` is the distance in fp32 of the two rows.
HWY_INLINE void load_pair(const float* at, int64_t stride, FloatVec& even, FloatVec& odd) {
  even = hn::LoadU(FloatTag(), at);
  odd = hn::LoadU(FloatTag(), at + stride);
}
HWY_INLINE void load_pair(const BFloat16* at, int64_t, FloatVec& even, FloatVec& odd) {
  const FloatTag d;
  const WordTag dw;
  const auto words = hn::LoadU(dw, reinterpret_cast<const uint32_t*>(at));
  even = hn::BitCast(d, hn::ShiftLeft<16>(words));
  odd = hn::BitCast(d, hn::And(words, hn::Set(dw, 0xffff0000U)));
}

// Elements from the start of a pair of rows to position `index` in it.
template <typename Element>
constexpr int64_t pair_element(int64_t index) {
  return sizeof(Element) == sizeof(float) ? index : 2 * index;
}

// Prefetches what the next granule has where this one is read: `ahead` bytes further.
template <typename Element>
HWY_INLINE void prefetch_pair(const Element* at, int64_t vectors, int64_t stride, int64_t ahead) {
  const char* next = reinterpret_cast<const char*>(at) + ahead;
  const int64_t bytes = vectors * kLanes * 4;
  for (int64_t b = 0; b < bytes; b += kCacheLine) {
    __builtin_prefetch(next + b, 0, 3);
    if (sizeof(Element) == sizeof(float)) {
      __builtin_prefetch(next + stride * 4 + b, 0, 3);
    }
  }
}

// scores[r][t] = q[r] . K[t] for the tokens of `kBlocks` blocks from 0 to at least `tokens` of
// each; whole vectors, so scores of tokens past the context may be garbage. The second block's K
// lies `apart` elements behind the first's. q [kQueries, width], already scaled.
template <typename Element, int kQueries, int kWidth, int kBlocks>
void score_block(const Element* key, int64_t apart, int64_t block_tokens, int64_t tokens,
                 int64_t width, const float* q, float* scores, const int64_t (&ahead)[kBlocks]) {
  const FloatTag d;
  const int64_t pair_stride = 2 * block_tokens;
  constexpr int kSums = kWidth * kBlocks;
  for (int64_t t = 0; t < tokens; t += kWidth * kLanes) {
    FloatVec sums[kQueries][kSums];
    HWY_UNROLL(8) for (int r = 0; r < kQueries; ++r) {
      HWY_UNROLL(8) for (int v = 0; v < kSums; ++v) { sums[r][v] = hn::Zero(d); }
    }
    const Element* at = key + pair_element<Element>(t);
    for (int64_t dim = 0; dim < width; dim += 2, at += pair_stride) {
      FloatVec even[kSums];
      FloatVec odd[kSums];
      HWY_UNROLL(2) for (int block = 0; block < kBlocks; ++block) {
        const Element* own = at + block * apart;
        prefetch_pair(own, kWidth, block_tokens, ahead[block]);
        HWY_UNROLL(8) for (int v = 0; v < kWidth; ++v) {
          const int sum = block * kWidth + v;
          load_pair(own + pair_element<Element>(v * kLanes), block_tokens, even[sum], odd[sum]);
        }
      }
      HWY_UNROLL(8) for (int r = 0; r < kQueries; ++r) {
        const FloatVec q_even = hn::Set(d, q[r * width + dim]);
        HWY_UNROLL(8) for (int v = 0; v < kSums; ++v) {
          sums[r][v] = hn::MulAdd(q_even, even[v], sums[r][v]);
        }
        const FloatVec q_odd = hn::Set(d, q[r * width + dim + 1]);
        HWY_UNROLL(8) for (int v = 0; v < kSums; ++v) {
          sums[r][v] = hn::MulAdd(q_odd, odd[v], sums[r][v]);
        }
      }
    }
    HWY_UNROLL(8) for (int r = 0; r < kQueries; ++r) {
      HWY_UNROLL(8) for (int v = 0; v < kSums; ++v) {
        hn::StoreU(sums[r][v], d,
                   scores + r * kScoreStride + v / kWidth * block_tokens + t + v % kWidth * kLanes);
      }
    }
  }
}

// values[r] += sum over the block's tokens begin .. end-1 of weights[r][t] * V[t]. Reads no weight
// and uses no V outside that range.
template <typename Element, int kQueries, int kWidth>
void weigh_block(const Element* value, int64_t width, int64_t begin, int64_t end,
                 const float* weights, float* values, int64_t record_floats, int64_t ahead) {
  const FloatTag d;
  for (int64_t dim = 0; dim < width; dim += kWidth * kLanes) {
    FloatVec sums[kQueries][kWidth];
    HWY_UNROLL(8) for (int r = 0; r < kQueries; ++r) {
      HWY_UNROLL(8) for (int v = 0; v < kWidth; ++v) {
        sums[r][v] = hn::LoadU(d, values + r * record_floats + dim + v * kLanes);
      }
    }
    const Element* column = value + pair_element<Element>(dim);
    FloatVec even;
    FloatVec odd;
    int64_t t = begin;
    if (t % 2 != 0 && t < end) {
      const Element* at = column + (t - 1) * width;
      HWY_UNROLL(8) for (int v = 0; v < kWidth; ++v) {
        load_pair(at + pair_element<Element>(v * kLanes), width, even, odd);
        HWY_UNROLL(8) for (int r = 0; r < kQueries; ++r) {
          sums[r][v] = hn::MulAdd(hn::Set(d, weights[r * kScoreStride + t]), odd, sums[r][v]);
        }
      }
      ++t;
    }
    for (; t + 2 <= end; t += 2) {
      const Element* at = column + t * width;
      prefetch_pair(at, kWidth, width, ahead);
      FloatVec evens[kWidth];
      FloatVec odds[kWidth];
      HWY_UNROLL(8) for (int v = 0; v < kWidth; ++v) {
        load_pair(at + pair_element<Element>(v * kLanes), width, evens[v], odds[v]);
      }
      HWY_UNROLL(8) for (int r = 0; r < kQueries; ++r) {
        const FloatVec w_even = hn::Set(d, weights[r * kScoreStride + t]);
        HWY_UNROLL(8) for (int v = 0; v < kWidth; ++v) {
          sums[r][v] = hn::MulAdd(w_even, evens[v], sums[r][v]);
        }
        const FloatVec w_odd = hn::Set(d, weights[r * kScoreStride + t + 1]);
        HWY_UNROLL(8) for (int v = 0; v < kWidth; ++v) {
          sums[r][v] = hn::MulAdd(w_odd, odds[v], sums[r][v]);
        }
      }
    }
    if (t < end) {
      const Element* at = column + t * width;
      HWY_UNROLL(8) for (int v = 0; v < kWidth; ++v) {
        load_pair(at + pair_element<Element>(v * kLanes), width, even, odd);
        HWY_UNROLL(8) for (int r = 0; r < kQueries; ++r) {
          sums[r][v] = hn::MulAdd(hn::Set(d, weights[r * kScoreStride + t]), even, sums[r][v]);
        }
      }
    }
    HWY_UNROLL(8) for (int r = 0; r < kQueries; ++r) {
      HWY_UNROLL(8) for (int v = 0; v < kWidth; ++v) {
        hn::StoreU(sums[r][v], d, values + r * record_floats + dim + v * kLanes);
      }
    }
  }
}

// Replaces the first `tokens` scores by exp(score - max) and returns max and sum. The last vector
// is masked: scores past the context are garbage.
void weights_from_scores(float* scores, int64_t tokens, float* record) {
  const FloatTag d;
  const FloatVec lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  const int64_t whole = tokens / kLanes * kLanes;
  const auto tail = hn::FirstN(d, static_cast<size_t>(tokens - whole));
  FloatVec maxima = lowest;
  for (int64_t t = 0; t < whole; t += kLanes) {
    maxima = hn::Max(maxima, hn::LoadU(d, scores + t));
  }
  if (whole < tokens) {
    maxima = hn::Max(maxima, hn::IfThenElse(tail, hn::LoadU(d, scores + whole), lowest));
  }
  const FloatVec max = hn::MaxOfLanes(d, maxima);
  FloatVec sums = hn::Zero(d);
  for (int64_t t = 0; t < whole; t += kLanes) {
    const FloatVec weight = vector_exp(hn::Sub(hn::LoadU(d, scores + t), max));
    hn::StoreU(weight, d, scores + t);
    sums = hn::Add(sums, weight);
  }
  if (whole < tokens) {
    const FloatVec weight = vector_exp(hn::Sub(hn::LoadU(d, scores + whole), max));
    hn::StoreU(weight, d, scores + whole);
    sums = hn::Add(sums, hn::IfThenElseZero(tail, weight));
  }
  record[kPartialMax] = hn::GetLane(max);
  record[kPartialSum] = hn::GetLane(hn::SumOfLanes(d, sums));
}

float exp_of(float x) { return hn::GetLane(vector_exp(hn::Set(FloatTag(), x))); }

// state <- state merged with the next split's record.
void fold(float* state, const float* record, int64_t width) {
  const FloatTag d;
  const float max = std::max(state[kPartialMax], record[kPartialMax]);
  const float keep = exp_of(state[kPartialMax] - max);
  const float add = exp_of(record[kPartialMax] - max);
  state[kPartialMax] = max;
  state[kPartialSum] = state[kPartialSum] * keep + record[kPartialSum] * add;
  const FloatVec keeps = hn::Set(d, keep);
  const FloatVec adds = hn::Set(d, add);
  for (int64_t i = kPartialValues; i < kPartialValues + width; i += kLanes) {
    const FloatVec kept = hn::Mul(hn::LoadU(d, state + i), keeps);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, record + i), adds, kept), d, state + i);
  }
}

template <typename Out>
void write_values(const float* state, int64_t head_dim, int64_t width, Out* out) {
  const FloatTag d;
  const FloatVec sum = hn::Set(d, state[kPartialSum]);
  for (int64_t i = 0; i < width; i += kLanes) {
    store_vector(hn::Div(hn::LoadU(d, state + kPartialValues + i), sum), out + i);
  }
  std::memset(out + head_dim, 0, static_cast<size_t>(width - head_dim) * sizeof(Out));
}

void write_attended(const AttentionArgs& args, int64_t row, int64_t head, const float* state) {
  const int64_t width = args.layout.padded_head_dim;
  const int64_t index = row * args.out_stride + head * width;
  if (args.out_type == ElementType::kF32) {
    write_values(state, args.layout.head_dim, width, static_cast<float*>(args.out) + index);
  } else {
    write_values(state, args.layout.head_dim, width, static_cast<BFloat16*>(args.out) + index);
  }
}

// The queries of a task that share a pass, and the workspace of that pass.
struct Tile {
  int64_t queries = 0;
  TokenRange tokens[kTileQueries] = {};  // of each query; begins and ends never decrease
  float* q = nullptr;                    // [kTileQueries, width], scaled
  float* scores = nullptr;               // [kTileQueries, kScoreStride]
  float* state = nullptr;                // [kTileQueries, record]
  float* record = nullptr;               // [kTileQueries, record]
};

int64_t tile_floats(const KvLayout& layout) {
  return kTileQueries * (layout.padded_head_dim + kScoreStride + 2 * partial_record_floats(layout));
}

int64_t attend_scratch_bytes(const AttentionArgs& args) {
  return tile_floats(args.layout) * static_cast<int64_t>(sizeof(float));
}

// One split for one tile.
template <typename Element>
class SplitPass {
 public:
  // `after`: what will be read after the tile.
  SplitPass(const AttentionArgs& args, const AttentionTask& task, const Tile& tile,
            const std::byte* after)
      : args_(args),
        layout_(args.layout),
        block_table_(args.slices[task.slice].block_table),
        kv_head_(task.kv_head),
        last_split_(task.split_begin + task.split_count - 1),
        tile_(tile),
        after_(after) {}

  // Fills records[i] for every query i that has tokens in the split; others are left alone. There
  // must be one.
  void run(int64_t split, float* records) {
    split_ = split;
    end_query_ = tile_.queries;
    while (tokens_of(end_query_ - 1).empty()) {  // the windows of the last ones begin later
      --end_query_;
    }
    first_query_ = 0;
    while (tokens_of(first_query_).empty()) {  // the contexts of the first ones ended before
      ++first_query_;
    }
    const int64_t first = tokens_of(first_query_).begin / layout_.block_tokens;
    const int64_t blocks =
        (tokens_of(end_query_ - 1).end + layout_.block_tokens - 1) / layout_.block_tokens;
    score_blocks(first, blocks);
    const int64_t record_floats = partial_record_floats(layout_);
    for (int64_t i = first_query_; i < end_query_; ++i) {
      float* record = records + i * record_floats;
      const TokenRange tokens = tokens_of(i);
      weights_from_scores(tile_.scores + i * kScoreStride + tokens.begin, tokens.end - tokens.begin,
                          record);
      std::memset(record + kPartialValues, 0,
                  static_cast<size_t>(layout_.padded_head_dim) * sizeof(float));
    }
    for (int64_t b = first; b < blocks; ++b) {
      weigh(b, records, b + 1 < blocks ? value_of(split, b + 1) : first_of_next(b));
    }
  }

 private:
  [[nodiscard]] TokenRange tokens_of(int64_t query) const {
    return in_split(tile_.tokens[query], split_);
  }
  [[nodiscard]] int64_t block_id(int64_t split, int64_t b) const {
    return block_table_[split * (kSplitTokens / layout_.block_tokens) + b];
  }
  [[nodiscard]] const std::byte* key_of(int64_t split, int64_t b) const {
    return args_.kv + layout_.key_offset(block_id(split, b), args_.layer, kv_head_);
  }
  [[nodiscard]] const std::byte* value_of(int64_t split, int64_t b) const {
    return args_.kv + layout_.value_offset(block_id(split, b), args_.layer, kv_head_);
  }
  [[nodiscard]] const std::byte* first_of_next(int64_t b) const {
    const bool more =
        split_ < last_split_ && !in_split(tile_.tokens[tile_.queries - 1], split_ + 1).empty();
    if (more) {
      return key_of(split_ + 1, 0);
    }
    return after_ != nullptr ? after_ : value_of(split_, b);
  }

  // Scores of the split's blocks first .. end-1. What is read next: their V.
  void score_blocks(int64_t first, int64_t end) {
    const auto after = [&](int64_t b) {
      return b < end ? key_of(split_, b) : value_of(split_, std::min(first + b - end, end - 1));
    };
    int64_t b = first;
    for (; few_queries() && b + 1 < end; b += 2) {
      score_two(b, after(b + 2), after(b + 3));
    }
    for (; b < end; ++b) {
      score(b, after(b + 1));
    }
  }

  // Scores of block b for all queries of the tile that reach it.
  void score(int64_t b, const std::byte* next) {
    const std::byte* key = key_of(split_, b);
    int64_t ahead = next - key;
    const int64_t start = b * layout_.block_tokens;
    for (int64_t i = first_query_; i < end_query_;) {
      const int64_t count = std::min<int64_t>(kMaxQueries, end_query_ - i);
      const int64_t wanted =
          std::min<int64_t>(tokens_of(i + count - 1).end - start, layout_.block_tokens);
      if (wanted > 0 && tokens_of(i).begin < start + layout_.block_tokens) {
        score_queries(key, b, i, count, wanted, ahead);
        ahead = 0;  // the first queries have asked for it
      }
      i += count;
    }
  }

  [[nodiscard]] bool few_queries() const {
    return end_query_ - first_query_ <= kFewQueries &&
           layout_.block_tokens % (kVectors * kLanes) == 0;
  }

  // Two blocks and what their scores are made of.
  struct Pair {
    const Element* key = nullptr;
    int64_t apart = 0;
    int64_t ahead[2] = {};
    const float* q = nullptr;
    float* scores = nullptr;
  };
  // Scores of blocks b and b + 1 for few queries.
  void score_two(int64_t b, const std::byte* next, const std::byte* second_next) {
    const std::byte* key = key_of(split_, b);
    const std::byte* second = key_of(split_, b + 1);
    const Pair pair{
        .key = reinterpret_cast<const Element*>(key),
        .apart = reinterpret_cast<const Element*>(second) - reinterpret_cast<const Element*>(key),
        .ahead = {next - key, second_next - second},
        .q = tile_.q + first_query_ * layout_.padded_head_dim,
        .scores = tile_.scores + first_query_ * kScoreStride + b * layout_.block_tokens};
    switch (end_query_ - first_query_) {
      case 1:
        return score_pair<1>(pair);
      case 2:
        return score_pair<2>(pair);
      case 3:
        return score_pair<3>(pair);
      default:
        return score_pair<4>(pair);
    }
  }

  template <int kQueries>
  void score_pair(const Pair& pair) {
    if constexpr (kQueries <= kFewQueries) {
      score_block<Element, kQueries, kVectors, 2>(pair.key, pair.apart, layout_.block_tokens,
                                                  layout_.block_tokens, layout_.padded_head_dim,
                                                  pair.q, pair.scores, pair.ahead);
    }
  }

  void score_queries(const std::byte* key, int64_t b, int64_t i, int64_t count, int64_t wanted,
                     int64_t ahead) {
    const auto* elements = reinterpret_cast<const Element*>(key);
    const int64_t width = layout_.padded_head_dim;
    const float* q = tile_.q + i * width;
    float* scores = tile_.scores + i * kScoreStride + b * layout_.block_tokens;
    if (layout_.block_tokens % (kVectors * kLanes) != 0) {  // AVX-512 and blocks of 16
      for (int64_t r = 0; r < count; ++r) {
        score_block<Element, 1, 1, 1>(elements, 0, layout_.block_tokens, wanted, width,
                                      q + r * width, scores + r * kScoreStride, {ahead});
      }
      return;
    }
    switch (count) {
#define TANDEM_SCORE(n)                                                                       \
  case n:                                                                                     \
    score_block<Element, n, kVectors, 1>(elements, 0, layout_.block_tokens, wanted, width, q, \
                                         scores, {ahead});                                    \
    break;
      TANDEM_SCORE(1)
      TANDEM_SCORE(2)
      TANDEM_SCORE(3)
      TANDEM_SCORE(4)
#if HWY_TARGET == HWY_AVX3
      TANDEM_SCORE(5)
      TANDEM_SCORE(6)
      TANDEM_SCORE(7)
      TANDEM_SCORE(8)
#endif
#undef TANDEM_SCORE
      default:
        break;
    }
  }

  // Adds block b's weighted V for all queries of the tile. Queries of one register block may begin
  // and end at different tokens: the common ones are shared, the rest goes query by query, each
  // query's tokens in order.
  void weigh(int64_t b, float* records, const std::byte* next) {
    const std::byte* value = value_of(split_, b);
    const int64_t start = b * layout_.block_tokens;
    const auto in_block = [&](int64_t token) {
      return std::clamp<int64_t>(token - start, 0, layout_.block_tokens);
    };
    int64_t ahead = next - value;
    for (int64_t i = first_query_; i < end_query_;) {
      const int64_t count = std::min<int64_t>(kMaxQueries, end_query_ - i);
      const TokenRange common{in_block(tokens_of(i + count - 1).begin), in_block(tokens_of(i).end)};
      for (int64_t r = i; r < i + count; ++r) {
        const TokenRange own{in_block(tokens_of(r).begin), in_block(tokens_of(r).end)};
        weigh_one(value, start, r, common.empty() ? own : TokenRange{own.begin, common.begin},
                  records);
      }
      if (!common.empty()) {
        weigh_queries(value, start, i, count, common, records, ahead);
        ahead = 0;
        for (int64_t r = i; r < i + count; ++r) {
          weigh_one(value, start, r, {common.end, in_block(tokens_of(r).end)}, records);
        }
      }
      i += count;
    }
  }

  // Tokens of the block of one query.
  void weigh_one(const std::byte* value, int64_t start, int64_t query, const TokenRange& tokens,
                 float* records) {
    const int64_t record_floats = partial_record_floats(layout_);
    if (!tokens.empty()) {
      weigh_block<Element, 1, kVectors>(
          reinterpret_cast<const Element*>(value), layout_.padded_head_dim, tokens.begin,
          tokens.end, tile_.scores + query * kScoreStride + start,
          records + query * record_floats + kPartialValues, record_floats, 0);
    }
  }

  template <int kQueries>
  void weigh_few(const Element* elements, const TokenRange& tokens, const float* weights,
                 float* values, int64_t ahead) {
    if constexpr (kQueries <= kFewQueries) {
      weigh_block<Element, kQueries, 2 * kVectors>(elements, layout_.padded_head_dim, tokens.begin,
                                                   tokens.end, weights, values,
                                                   partial_record_floats(layout_), ahead);
    }
  }
  void weigh_few(int64_t count, const Element* elements, const TokenRange& tokens,
                 const float* weights, float* values, int64_t ahead) {
    switch (count) {
      case 1:
        return weigh_few<1>(elements, tokens, weights, values, ahead);
      case 2:
        return weigh_few<2>(elements, tokens, weights, values, ahead);
      case 3:
        return weigh_few<3>(elements, tokens, weights, values, ahead);
      default:
        return weigh_few<4>(elements, tokens, weights, values, ahead);
    }
  }

  void weigh_queries(const std::byte* value, int64_t start, int64_t i, int64_t count,
                     const TokenRange& tokens, float* records, int64_t ahead) {
    const auto* elements = reinterpret_cast<const Element*>(value);
    const int64_t width = layout_.padded_head_dim;
    const int64_t record_floats = partial_record_floats(layout_);
    const float* weights = tile_.scores + i * kScoreStride + start;
    float* values = records + i * record_floats + kPartialValues;
    if (count <= kFewQueries && width % (2 * kVectors * kLanes) == 0) {
      weigh_few(count, elements, tokens, weights, values, ahead);
      return;
    }
    switch (count) {
#define TANDEM_WEIGH(n)                                                                           \
  case n:                                                                                         \
    weigh_block<Element, n, kVectors>(elements, width, tokens.begin, tokens.end, weights, values, \
                                      record_floats, ahead);                                      \
    break;
      TANDEM_WEIGH(1)
      TANDEM_WEIGH(2)
      TANDEM_WEIGH(3)
      TANDEM_WEIGH(4)
#if HWY_TARGET == HWY_AVX3
      TANDEM_WEIGH(5)
      TANDEM_WEIGH(6)
      TANDEM_WEIGH(7)
      TANDEM_WEIGH(8)
#endif
#undef TANDEM_WEIGH
      default:
        break;
    }
  }

  const AttentionArgs& args_;
  const KvLayout& layout_;
  const int32_t* block_table_;
  int64_t kv_head_;
  int64_t last_split_;
  const Tile& tile_;
  const std::byte* after_;
  int64_t split_ = 0;
  int64_t first_query_ = 0;
  int64_t end_query_ = 0;
};

// Queries first .. first + tile.queries - 1 of the task, counted row by row.
void load_queries(const AttentionArgs& args, const AttentionTask& task, int64_t first, Tile& tile) {
  const FloatTag d;
  const int64_t width = args.layout.padded_head_dim;
  const int64_t group = query_group(args);
  const FloatVec scale = hn::Set(d, args.scale);
  for (int64_t i = 0; i < tile.queries; ++i) {
    const int64_t row = task.row_begin + (first + i) / group;
    const int64_t head = task.kv_head * group + (first + i) % group;
    const float* q = args.q + (row * args.heads + head) * width;
    for (int64_t dim = 0; dim < width; dim += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, q + dim), scale), d, tile.q + i * width + dim);
    }
    tile.tokens[i] = row_tokens(args, args.slices[task.slice], row);
  }
}

template <typename Element>
void attend_tile(const AttentionArgs& args, const AttentionTask& task, int64_t first,
                 const Tile& tile, const std::byte* after) {
  const int64_t record_floats = partial_record_floats(args.layout);
  const int64_t group = query_group(args);
  SplitPass<Element> pass(args, task, tile, after);
  const int64_t begin = std::max<int64_t>(task.split_begin, tile.tokens[0].begin / kSplitTokens);
  const int64_t end = std::min<int64_t>(task.split_begin + task.split_count,
                                        splits_of(tile.tokens[tile.queries - 1].end));
  for (int64_t split = begin; split < end; ++split) {
    if (task.partial_offset >= 0) {
      pass.run(split, args.partials + task.partial_offset +
                          (split - task.split_begin) * split_floats(args, task.row_count) +
                          first * record_floats);
      continue;
    }
    pass.run(split, split == begin ? tile.state : tile.record);
    for (int64_t i = 0; split > begin && i < tile.queries; ++i) {
      if (in_split(tile.tokens[i], split).empty()) {
        continue;
      }
      float* state = tile.state + i * record_floats;
      const float* record = tile.record + i * record_floats;
      if (tile.tokens[i].begin / kSplitTokens == split) {  // the window begins here
        std::memcpy(state, record, static_cast<size_t>(record_floats) * sizeof(float));
      } else {
        fold(state, record, args.layout.padded_head_dim);
      }
    }
  }
  for (int64_t i = 0; task.partial_offset < 0 && i < tile.queries; ++i) {
    write_attended(args, task.row_begin + (first + i) / group,
                   task.kv_head * group + (first + i) % group, tile.state + i * record_floats);
  }
}

// The first K that a task reads.
const std::byte* first_key(const AttentionArgs& args, const AttentionTask& task) {
  const AttentionSlice& slice = args.slices[task.slice];
  const int64_t token = std::max(int64_t{task.split_begin} * kSplitTokens,
                                 row_tokens(args, slice, task.row_begin).begin);
  return args.kv + args.layout.key_offset(slice.block_table[token / args.layout.block_tokens],
                                          args.layer, task.kv_head);
}

void attend_task(const AttentionArgs& args, const AttentionTask& task, Tile& tile,
                 const std::byte* after) {
  const int64_t queries = task.row_count * query_group(args);
  for (int64_t first = 0; first < queries; first += kTileQueries) {
    tile.queries = std::min<int64_t>(kTileQueries, queries - first);
    load_queries(args, task, first, tile);
    const std::byte* next = first + kTileQueries < queries ? nullptr : after;
    if (args.layout.type == ElementType::kF32) {
      attend_tile<float>(args, task, first, tile, next);
    } else {
      attend_tile<BFloat16>(args, task, first, tile, next);
    }
  }
}

void attend(const AttentionArgs& args, std::span<const AttentionTask> tasks, void* scratch) {
  Tile tile;
  tile.q = static_cast<float*>(scratch);
  tile.scores = tile.q + kTileQueries * args.layout.padded_head_dim;
  tile.state = tile.scores + kTileQueries * kScoreStride;
  tile.record = tile.state + kTileQueries * partial_record_floats(args.layout);
  for (size_t i = 0; i < tasks.size(); ++i) {
    attend_task(args, tasks[i], tile,
                i + 1 < tasks.size() ? first_key(args, tasks[i + 1]) : nullptr);
  }
}

}  // namespace

void fill_attention(Kernels& table) {
  table.attend_scratch_bytes = attend_scratch_bytes;
  table.attend = attend;
  table.fold = fold;
  table.write_attended = write_attended;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tandem::kernels::portable::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE
namespace tandem::kernels::portable {
TANDEM_PORTABLE_EXPORT(fill_attention, Kernels)
}  // namespace tandem::kernels::portable
#endif
