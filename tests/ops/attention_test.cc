// Paged attention of every kernel family against a double-precision oracle; equality of bits
// between prefill and decode, and between divisions into tasks.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "families.h"
#include "kernels/kernels.h"

namespace tandem::kernels {
namespace {

struct Shape {
  ElementType type = ElementType::kBF16;
  int32_t kv_heads = 2;
  int32_t group = 4;
  int32_t head_dim = 64;
  int32_t block_tokens = 32;
  ElementType out_type = ElementType::kF32;
  int32_t window = 0;
};

struct SliceShape {
  int64_t first_position = 0;
  int64_t rows = 1;
};

// A pool with the K and V of several sequences in shuffled blocks. Whatever is not a token's own is
// NaN.
class Case {
 public:
  Case(const Shape& shape, const std::vector<SliceShape>& slices, uint64_t seed)
      : shape_(shape), random_(seed), slice_shapes_(slices) {
    args_.layout.type = shape.type;
    args_.layout.layers = 2;
    args_.layout.kv_heads = shape.kv_heads;
    args_.layout.head_dim = shape.head_dim;
    args_.layout.padded_head_dim = (shape.head_dim + 31) / 32 * 32;
    args_.layout.block_tokens = shape.block_tokens;
    args_.layer = 1;
    args_.heads = shape.kv_heads * shape.group;
    args_.scale = static_cast<float>(1.0 / std::sqrt(shape.head_dim));
    args_.out_type = shape.out_type;
    args_.window = shape.window;
    int64_t blocks = 1;
    int64_t rows = 0;
    for (const SliceShape& slice : slices) {
      blocks += blocks_of(slice);
      rows += slice.rows;
    }
    rows_ = rows;
    std::vector<int32_t> ids(static_cast<size_t>(blocks));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random_);
    pool_ = std::make_unique<Guarded<std::byte>>(blocks * args_.layout.block_bytes());
    q_ = std::make_unique<Guarded<float>>(rows * q_width());
    fill_queries();
    int32_t row = 0;
    for (const SliceShape& slice : slices) {
      const auto count = static_cast<size_t>(blocks_of(slice));
      tables_.emplace_back(ids.end() - static_cast<int64_t>(count), ids.end());
      ids.resize(ids.size() - count);
      slices_.push_back({.row_begin = row,
                         .row_count = static_cast<int32_t>(slice.rows),
                         .first_position = static_cast<int32_t>(slice.first_position),
                         .block_table = nullptr});
      row += static_cast<int32_t>(slice.rows);
      fill_tokens(tables_.back(), slice.first_position + slice.rows);
    }
    for (size_t i = 0; i < slices_.size(); ++i) {
      slices_[i].block_table = tables_[i].data();
    }
    args_.kv = pool_->data();
    args_.q = q_->data();
    args_.slices = slices_.data();
    args_.slice_count = static_cast<int32_t>(slices_.size());
    args_.partial_floats = int64_t{1} << 40;  // whatever the plan divides, there is room for
  }

  [[nodiscard]] const AttentionArgs& args() const { return args_; }
  [[nodiscard]] int64_t out_elements() const { return rows_ * q_width(); }

  // Runs as planned for `threads`, the tasks in shuffled order when `shuffled` > 0.
  std::vector<float> run(const Kernels& kernels, int32_t threads, uint64_t shuffle_seed = 0) {
    AttentionPlan plan;
    plan_attention(args_, threads, plan);
    if (shuffle_seed != 0) {
      Random order(shuffle_seed);
      std::shuffle(plan.tasks.begin(), plan.tasks.end(), order);
      std::shuffle(plan.merges.begin(), plan.merges.end(), order);
    }
    return run_plan(kernels, plan, 1);
  }

  std::vector<float> run_plan(const Kernels& kernels, const AttentionPlan& plan, int threads) {
    Guarded<std::byte> out(out_elements() * element_bytes(shape_.out_type));
    Guarded<float> partials(plan.partial_floats);
    AttentionArgs args = args_;
    args.out = out.data();
    args.out_stride = int64_t{args.heads} * args.layout.padded_head_dim;
    args.partials = partials.data();
    std::vector<std::thread> workers;
    const auto work = [&](size_t first) {
      Guarded<std::byte> scratch(kernels.attend_scratch_bytes(args));
      for (size_t i = first; i < plan.run_ends.size(); i += static_cast<size_t>(threads)) {
        kernels.attend(args, run_of(plan, i), scratch.data());
      }
      EXPECT_TRUE(scratch.guards_intact());
    };
    for (int t = 1; t < threads; ++t) {
      workers.emplace_back(work, static_cast<size_t>(t));
    }
    work(0);
    for (std::thread& worker : workers) {
      worker.join();
    }
    for (const AttentionMerge& merge : plan.merges) {
      merge_splits(kernels, args, merge);
    }
    EXPECT_TRUE(out.guards_intact());
    EXPECT_TRUE(partials.guards_intact());
    std::vector<float> result(static_cast<size_t>(out_elements()));
    for (size_t i = 0; i < result.size(); ++i) {
      result[i] = get(out.data(), shape_.out_type, static_cast<int64_t>(i));
    }
    return result;
  }

  // The same rows, each as a slice of its own: what decoding them one by one computes.
  std::vector<float> run_as_decode(const Kernels& kernels, int32_t threads) {
    std::vector<AttentionSlice> singles;
    for (const AttentionSlice& slice : slices_) {
      for (int32_t r = 0; r < slice.row_count; ++r) {
        singles.push_back({slice.row_begin + r, 1, slice.first_position + r, slice.block_table});
      }
    }
    const AttentionArgs saved = args_;
    args_.slices = singles.data();
    args_.slice_count = static_cast<int32_t>(singles.size());
    std::vector<float> result = run(kernels, threads);
    args_ = saved;
    return result;
  }

  void keep_slices(int32_t count) { args_.slice_count = count; }

  std::vector<double> oracle() {
    std::vector<double> out(static_cast<size_t>(out_elements()), 0.0);
    for (const AttentionSlice& slice : slices_) {
      for (int32_t r = 0; r < slice.row_count; ++r) {
        for (int32_t head = 0; head < args_.heads; ++head) {
          oracle_head(slice, slice.row_begin + r, slice.first_position + r + 1, head, out);
        }
      }
    }
    return out;
  }

 private:
  [[nodiscard]] int64_t blocks_of(const SliceShape& slice) const {
    return (slice.first_position + slice.rows + shape_.block_tokens - 1) / shape_.block_tokens;
  }
  [[nodiscard]] int64_t q_width() const {
    return int64_t{args_.heads} * args_.layout.padded_head_dim;
  }

  void fill_queries() {
    const int64_t width = args_.layout.padded_head_dim;
    for (int64_t i = 0; i < q_->size(); ++i) {
      (*q_)[i] = i % width < shape_.head_dim ? uniform(random_, -3.0F, 3.0F) : 0.0F;
    }
  }

  void fill_tokens(const std::vector<int32_t>& table, int64_t tokens) {
    const KvLayout& layout = args_.layout;
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t block = table[static_cast<size_t>(t / layout.block_tokens)];
      const int64_t slot = t % layout.block_tokens;
      for (int64_t head = 0; head < layout.kv_heads; ++head) {
        std::byte* key = pool_->data() + layout.key_offset(block, args_.layer, head);
        std::byte* value = pool_->data() + layout.value_offset(block, args_.layer, head);
        for (int64_t dim = 0; dim < layout.padded_head_dim; ++dim) {
          const bool real = dim < layout.head_dim;
          put(key, layout.type, layout.key_element(slot, dim),
              real ? uniform(random_, -2.0F, 2.0F) : 0.0F);
          put(value, layout.type, layout.value_element(slot, dim),
              real ? uniform(random_, -2.0F, 2.0F) : 0.0F);
        }
      }
    }
  }

  void oracle_head(const AttentionSlice& slice, int64_t row, int64_t tokens, int64_t head,
                   std::vector<double>& out) {
    const KvLayout& layout = args_.layout;
    const int64_t width = layout.padded_head_dim;
    const int64_t kv_head = head / shape_.group;
    const int64_t first = shape_.window == 0 ? 0 : std::max<int64_t>(tokens - shape_.window, 0);
    std::vector<double> scores(static_cast<size_t>(tokens), -INFINITY);
    for (int64_t t = first; t < tokens; ++t) {
      const int64_t block = slice.block_table[t / layout.block_tokens];
      const std::byte* key = pool_->data() + layout.key_offset(block, args_.layer, kv_head);
      double score = 0.0;
      for (int64_t dim = 0; dim < layout.head_dim; ++dim) {
        score += static_cast<double>((*q_)[(row * args_.heads + head) * width + dim]) *
                 static_cast<double>(
                     get(key, layout.type, layout.key_element(t % layout.block_tokens, dim)));
      }
      scores[static_cast<size_t>(t)] = score / std::sqrt(static_cast<double>(layout.head_dim));
    }
    const double max = *std::max_element(scores.begin(), scores.end());
    double sum = 0.0;
    for (double& score : scores) {
      score = std::exp(score - max);
      sum += score;
    }
    for (int64_t t = first; t < tokens; ++t) {
      const int64_t block = slice.block_table[t / layout.block_tokens];
      const std::byte* value = pool_->data() + layout.value_offset(block, args_.layer, kv_head);
      for (int64_t dim = 0; dim < layout.head_dim; ++dim) {
        out[static_cast<size_t>((row * args_.heads + head) * width + dim)] +=
            scores[static_cast<size_t>(t)] / sum *
            static_cast<double>(
                get(value, layout.type, layout.value_element(t % layout.block_tokens, dim)));
      }
    }
  }

  Shape shape_;
  Random random_;
  std::vector<SliceShape> slice_shapes_;
  int64_t rows_ = 0;
  AttentionArgs args_;
  std::unique_ptr<Guarded<std::byte>> pool_;
  std::unique_ptr<Guarded<float>> q_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<AttentionSlice> slices_;
};

class Attention : public testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    if (!can_run(GetParam())) {
      GTEST_SKIP() << "this machine has no " << GetParam().name;
    }
    kernels_ = &table_of(GetParam());
  }
  const Kernels* kernels_ = nullptr;
};

constexpr ElementType kF32 = ElementType::kF32;
constexpr ElementType kBF16 = ElementType::kBF16;

TEST_P(Attention, AgreesWithDoublePrecisionForEveryHeadDimAndGroup) {
  uint64_t seed = 1;
  for (const int32_t head_dim : {8, 40, 64, 80, 96, 128, 256}) {
    for (const int32_t group : {1, 2, 3, 5, 7, 8, 12}) {
      const ElementType type = seed % 2 == 0 ? kF32 : kBF16;
      const ElementType out_type = seed % 3 == 0 ? kBF16 : kF32;
      const int32_t block_tokens = std::vector<int32_t>{16, 32, 64, 256}[seed % 4];
      Case attention({type, 1, group, head_dim, block_tokens, out_type},
                     {{static_cast<int64_t>(seed * 7 % 300), 1}, {static_cast<int64_t>(seed), 5}},
                     seed);
      const double error = relative_error(attention.run(*kernels_, 2), attention.oracle());
      EXPECT_LT(error, out_type == kF32 ? 1e-5 : 5e-3)
          << "head dim " << head_dim << ", group " << group << ", block " << block_tokens;
      ++seed;
    }
  }
}

TEST_P(Attention, AgreesWithDoublePrecisionAroundTheEdgesOfBlocksAndSplits) {
  for (const ElementType type : {kF32, kBF16}) {
    Case attention(
        {type, 2, 2, 32, 32, kF32},
        {{0, 1}, {14, 3}, {31, 1}, {32, 1}, {254, 4}, {255, 1}, {256, 1}, {511, 2}, {700, 1}}, 7);
    for (const int32_t threads : {1, 3, 64}) {
      EXPECT_LT(relative_error(attention.run(*kernels_, threads), attention.oracle()), 5e-6);
    }
  }
}

TEST_P(Attention, AgreesWithDoublePrecisionAtALongContext) {
  Case attention({kBF16, 1, 4, 32, 32, kF32}, {{20000, 1}}, 11);
  EXPECT_LT(relative_error(attention.run(*kernels_, 2), attention.oracle()), 1e-5);
}

TEST_P(Attention, PrefillRowEqualsTheDecodeRowOfItsPositionBitForBit) {
  uint64_t seed = 100;
  for (const ElementType type : {kF32, kBF16}) {
    for (const int32_t group : {1, 3, 4, 8}) {
      for (const int64_t first : {int64_t{0}, int64_t{237}}) {
        Case attention({type, 2, group, 48, 32, kF32}, {{first, 90}, {first / 2, 3}}, ++seed);
        const std::vector<float> prefill = attention.run(*kernels_, 1);
        EXPECT_EQ(prefill, attention.run_as_decode(*kernels_, 1));
        EXPECT_EQ(prefill, attention.run_as_decode(*kernels_, 16));
      }
    }
  }
}

TEST_P(Attention, ResultDoesNotDependOnTheDivisionIntoTasks) {
  Case attention({kBF16, 2, 4, 64, 32, kF32}, {{1500, 1}, {600, 37}, {0, 20}, {10, 1}}, 21);
  const std::vector<float> whole = attention.run(*kernels_, 1);
  for (const int32_t threads : {2, 3, 8, 200}) {
    EXPECT_EQ(whole, attention.run(*kernels_, threads, static_cast<uint64_t>(threads)));
  }
}

TEST_P(Attention, TasksMayRunOnAnyThreadsAtOnce) {
  Case attention({kBF16, 2, 4, 32, 32, kF32}, {{2000, 1}, {300, 33}}, 22);
  AttentionPlan plan;
  plan_attention(attention.args(), 8, plan);
  ASSERT_FALSE(plan.merges.empty());
  EXPECT_EQ(attention.run(*kernels_, 1), attention.run_plan(*kernels_, plan, 4));
}

TEST_P(Attention, TasksGivenTogetherEqualTasksGivenOneByOne) {
  for (const int32_t block_tokens : {16, 32, 64}) {
    Case attention({kBF16, 2, 4, 64, block_tokens, kF32},
                   {{1500, 1}, {600, 37}, {0, 1}, {3, 1}, {40, 90}, {255, 1}}, 23);
    AttentionPlan plan;
    plan_attention(attention.args(), 2, plan);
    const std::vector<float> together = attention.run_plan(*kernels_, plan, 1);
    plan.run_ends.resize(plan.tasks.size());
    std::iota(plan.run_ends.begin(), plan.run_ends.end(), 1);
    EXPECT_EQ(together, attention.run_plan(*kernels_, plan, 1));
    plan.run_ends = {static_cast<int32_t>(plan.tasks.size())};
    EXPECT_EQ(together, attention.run_plan(*kernels_, plan, 1));
  }
}

TEST_P(Attention, ResultDoesNotDependOnTheOtherSlices) {
  Case attention({kBF16, 2, 4, 64, 32, kF32}, {{400, 9}, {123, 4}, {900, 1}}, 34);
  const std::vector<float> together = attention.run(*kernels_, 2);
  attention.keep_slices(1);
  const std::vector<float> alone = attention.run(*kernels_, 2);
  const size_t own = together.size() * 9 / 14;
  EXPECT_TRUE(
      std::equal(together.begin(), together.begin() + static_cast<int64_t>(own), alone.begin()));
  EXPECT_TRUE(std::isnan(alone[own]));  // rows of no slice are left alone
}

TEST_P(Attention, TokensPastARowsPositionDoNotMatterEvenWhenTheyAreNan) {
  // Rows of one tile end at different tokens; the last row's token is made NaN.
  const Shape shape{kBF16, 1, 2, 32, 32, kF32};
  Case attention(shape, {{40, 8}}, 44);
  const std::vector<float> expected = attention.run(*kernels_, 1);
  const KvLayout& layout = attention.args().layout;
  const int64_t block = attention.args().slices[0].block_table[1];
  auto* pool = const_cast<std::byte*>(attention.args().kv);
  for (int64_t dim = 0; dim < layout.padded_head_dim; ++dim) {
    put(pool + layout.key_offset(block, 1, 0), kBF16, layout.key_element(15, dim), NAN);
    put(pool + layout.value_offset(block, 1, 0), kBF16, layout.value_element(15, dim), NAN);
  }
  const std::vector<float> got = attention.run(*kernels_, 1);
  const size_t row_floats = expected.size() / 8;
  for (size_t i = 0; i < 7 * row_floats; ++i) {
    ASSERT_EQ(expected[i], got[i]) << "element " << i;
  }
  EXPECT_TRUE(std::isnan(got[7 * row_floats]));
}

TEST_P(Attention, ANanInOneTokensVReachesExactlyTheRowsThatAttendToIt) {
  for (const int32_t window : {0, 20}) {
    for (const int32_t group : {1, 4}) {
      Case attention({kBF16, 1, group, 48, 32, kF32, window}, {{270, 70}}, 45);
      const std::vector<float> expected = attention.run(*kernels_, 1);
      const KvLayout& layout = attention.args().layout;
      constexpr int64_t kToken = 299;
      const int64_t block = attention.args().slices[0].block_table[kToken / 32];
      auto* pool = const_cast<std::byte*>(attention.args().kv);
      put(pool + layout.value_offset(block, 1, 0), kBF16, layout.value_element(kToken % 32, 5),
          NAN);
      const std::vector<float> got = attention.run(*kernels_, 1);
      const int64_t width = layout.padded_head_dim;
      for (size_t i = 0; i < expected.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        const int64_t position = 270 + at / (group * width);
        const bool attends = position >= kToken && (window == 0 || position - window < kToken);
        if (attends && at % width == 5) {
          ASSERT_TRUE(std::isnan(got[i])) << "position " << position << ", window " << window;
        } else {
          ASSERT_EQ(expected[i], got[i]) << "position " << position << ", window " << window;
        }
      }
    }
  }
}

TEST_P(Attention, AWindowAgreesWithDoublePrecisionAroundTheEdgesOfBlocksAndSplits) {
  for (const ElementType type : {kF32, kBF16}) {
    for (const int32_t window : {1, 2, 31, 32, 33, 100, 255, 256, 257, 600}) {
      Case attention({type, 2, 3, 40, 32, kF32, window},
                     {{0, 1}, {30, 5}, {254, 4}, {255, 1}, {256, 1}, {250, 90}, {511, 2}, {900, 1}},
                     static_cast<uint64_t>(window) + 60);
      const std::vector<double> expected = attention.oracle();
      for (const int32_t threads : {1, 3, 64}) {
        EXPECT_LT(relative_error(attention.run(*kernels_, threads), expected), 5e-6)
            << "window " << window << ", " << threads << " threads";
      }
    }
  }
}

TEST_P(Attention, WithAWindowEveryDivisionAndChunkGivesTheSameBits) {
  for (const ElementType type : {kF32, kBF16}) {
    for (const int32_t window : {1, 45, 256, 300}) {
      for (const int32_t group : {1, 4, 8}) {
        Case attention({type, 2, group, 48, 16, kF32, window},
                       {{0, 90}, {237, 60}, {500, 40}, {1300, 1}},
                       static_cast<uint64_t>(window * 10 + group));
        const std::vector<float> whole = attention.run(*kernels_, 1);
        EXPECT_EQ(whole, attention.run_as_decode(*kernels_, 1));
        EXPECT_EQ(whole, attention.run_as_decode(*kernels_, 16));
        for (const int32_t threads : {2, 8, 200}) {
          EXPECT_EQ(whole, attention.run(*kernels_, threads, static_cast<uint64_t>(threads)));
        }
      }
    }
  }
}

TEST_P(Attention, AWindowAsLongAsTheContextIsNone) {
  const std::vector<SliceShape> slices = {{0, 50}, {700, 3}};
  Case without({kBF16, 2, 4, 64, 32, kF32}, slices, 71);
  Case with({kBF16, 2, 4, 64, 32, kF32, 703}, slices, 71);
  EXPECT_EQ(with.run(*kernels_, 3), without.run(*kernels_, 3));
}

TEST_P(Attention, TokensBeforeTheWindowAreNotUsedEvenWhenTheyAreNan) {
  const Shape shape{kBF16, 1, 4, 32, 32, kF32, 40};
  Case attention(shape, {{400, 20}}, 72);
  const std::vector<float> expected = attention.run(*kernels_, 2);
  const KvLayout& layout = attention.args().layout;
  auto* pool = const_cast<std::byte*>(attention.args().kv);
  for (int64_t t = 0; t <= 400 - 40; ++t) {
    const int64_t block = attention.args().slices[0].block_table[t / 32];
    for (int64_t dim = 0; dim < layout.padded_head_dim; ++dim) {
      put(pool + layout.key_offset(block, 1, 0), kBF16, layout.key_element(t % 32, dim), NAN);
      put(pool + layout.value_offset(block, 1, 0), kBF16, layout.value_element(t % 32, dim), NAN);
    }
  }
  EXPECT_EQ(attention.run(*kernels_, 2), expected);
}

TEST_P(Attention, PaddingOfHeadsIsWrittenAsZero) {
  Case attention({kBF16, 1, 3, 8, 16, kBF16}, {{5, 2}}, 55);
  const std::vector<float> out = attention.run(*kernels_, 1);
  for (size_t i = 0; i < out.size(); ++i) {
    if (i % 32 >= 8) {
      EXPECT_EQ(out[i], 0.0F);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryFamily, Attention, testing::ValuesIn(known_families()),
                         [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace tandem::kernels
