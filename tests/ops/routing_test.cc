// The way of a row to the other tier and back, for every kernel family: routed rows against a
// double-precision oracle and, bit for bit, against what RoPE with the KV write gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "families.h"
#include "kernels/kernels.h"

namespace tandem::kernels {
namespace {

using ElementType::kBF16;
using ElementType::kF32;
constexpr double kEpsilon = 1e-3;

struct Shape {
  ElementType type = kBF16;
  int32_t heads = 4;
  int32_t kv_heads = 2;
  int32_t head_dim = 64;
  bool norm = false;
};

// `count` different numbers below `limit`, in no order.
std::vector<int32_t> distinct(Random& random, int64_t count, int64_t limit) {
  std::vector<int32_t> all(static_cast<size_t>(limit));
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), random);
  all.resize(static_cast<size_t>(count));
  return all;
}

// A tail of visitors behind some residents, and everything that its routes touch.
class Tail {
 public:
  Tail(const Shape& shape, uint64_t seed)
      : shape_(shape),
        random_(seed),
        layout_{shape.type,    2, shape.kv_heads, shape.head_dim, (shape.head_dim + 31) / 32 * 32,
                16 << seed % 3},
        routed_(layout_, shape.heads),
        rows_(pick(random_, 1, 9)),
        qkv_stride_(columns() + pick(random_, 0, 40)),
        hidden_(pick(random_, 1, 200)),
        residual_stride_(hidden_ + pick(random_, 0, 40)),
        store_stride_(hidden_ + pick(random_, 0, 40)),
        qkv_(rows_ * qkv_stride_),
        residual_(rows_ * residual_stride_),
        ring_(kRingRows * routed_.bytes()),
        store_(kSlots * store_stride_),
        q_(rows_ * shape.heads * layout_.padded_head_dim),
        written_(kBlocks * layout_.block_bytes()),
        appended_(kBlocks * layout_.block_bytes()),
        ring_rows_(distinct(random_, rows_, kRingRows)),
        slots_(distinct(random_, rows_, kSlots)) {
    const int64_t half = layout_.head_dim / 2;
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t i = 0; i < columns(); ++i) {
        const bool real = i % layout_.padded_head_dim < layout_.head_dim;
        qkv_[row * qkv_stride_ + i] = real ? uniform(random_, -3.0F, 3.0F) : 0.0F;
      }
      for (int64_t i = 0; i < hidden_; ++i) {
        residual_[row * residual_stride_ + i] = uniform(random_, -3.0F, 3.0F);
      }
      for (int64_t i = 0; i < half; ++i) {
        const float angle = uniform(random_, 0.0F, 6.0F);
        cos_.push_back(std::cos(angle));
        sin_.push_back(std::sin(angle));
      }
    }
    for (const int32_t token : distinct(random_, rows_, kBlocks * layout_.block_tokens)) {
      blocks_.push_back(token / layout_.block_tokens);
      token_slots_.push_back(token % layout_.block_tokens);
    }
    for (int64_t i = 0; shape.norm && i < layout_.head_dim; ++i) {
      q_norm_.push_back(uniform(random_, 0.5F, 1.5F));
      k_norm_.push_back(uniform(random_, -1.5F, -0.5F));
    }
  }

  void route(const Kernels& kernels) {
    const RopeRouteArgs args{.qkv = qkv_.data(),
                             .qkv_stride = qkv_stride_,
                             .rows = rows_,
                             .cos = cos_.data(),
                             .sin = sin_.data(),
                             .heads = shape_.heads,
                             .layout = layout_,
                             .q_norm = shape_.norm ? q_norm_.data() : nullptr,
                             .k_norm = shape_.norm ? k_norm_.data() : nullptr,
                             .norm_epsilon = static_cast<float>(kEpsilon),
                             .ring = ring_.data(),
                             .ring_rows = ring_rows_.data(),
                             .residual = residual_.data(),
                             .residual_stride = residual_stride_,
                             .residual_columns = hidden_,
                             .residual_store = store_.data(),
                             .store_stride = store_stride_,
                             .residual_slots = slots_.data()};
    kernels.rope_route(args, rows_ / 2, rows_);
    kernels.rope_route(args, 0, rows_ / 2);
  }

  void write(const Kernels& kernels) {
    kernels.rope_write({.qkv = qkv_.data(),
                        .qkv_stride = qkv_stride_,
                        .rows = rows_,
                        .cos = cos_.data(),
                        .sin = sin_.data(),
                        .heads = shape_.heads,
                        .layout = layout_,
                        .layer = 1,
                        .kv = written_.data(),
                        .blocks = blocks_.data(),
                        .slots = token_slots_.data(),
                        .q = q_.data(),
                        .q_norm = shape_.norm ? q_norm_.data() : nullptr,
                        .k_norm = shape_.norm ? k_norm_.data() : nullptr,
                        .norm_epsilon = static_cast<float>(kEpsilon)},
                       0, rows_);
  }

  void append(const Kernels& kernels) {
    for (size_t row = 0; row < ring_rows_.size(); ++row) {
      const KvAppendArgs args{.routed = routed_row(static_cast<int64_t>(row)),
                              .heads = shape_.heads,
                              .layout = layout_,
                              .layer = 1,
                              .block = blocks_[row],
                              .slot = token_slots_[row],
                              .kv = appended_.data()};
      kernels.kv_append(args, shape_.kv_heads / 2, shape_.kv_heads);
      kernels.kv_append(args, 0, shape_.kv_heads / 2);
    }
  }

  // Every element of the routed rows, and nothing written beside them.
  void expect_right() {
    const int64_t width = layout_.padded_head_dim;
    for (int64_t row = 0; row < rows_; ++row) {
      const std::byte* routed = routed_row(row);
      for (int64_t head = 0; head < shape_.heads; ++head) {
        for (int64_t dim = 0; dim < width; ++dim) {
          ASSERT_NEAR(get(routed, kF32, head * width + dim), rotated(row, head, dim), 1e-5);
        }
      }
      const double tolerance = layout_.type == kF32 ? 1e-5 : 0.02;
      for (int64_t head = 0; head < shape_.kv_heads; ++head) {
        for (int64_t dim = 0; dim < width; ++dim) {
          const int64_t at = head * width + dim;
          const int64_t v = row * qkv_stride_ + (shape_.heads + shape_.kv_heads) * width + at;
          ASSERT_NEAR(get(routed + routed_.key_offset(), layout_.type, at),
                      rotated(row, shape_.heads + head, dim), tolerance);
          ASSERT_NEAR(get(routed + routed_.value_offset(), layout_.type, at), qkv_[v], tolerance);
        }
      }
    }
    expect_residuals_stored();
    for (int32_t row = 0; row < kRingRows; ++row) {
      if (std::find(ring_rows_.begin(), ring_rows_.end(), row) == ring_rows_.end()) {
        for (int64_t i = 0; i < routed_.bytes(); ++i) {
          ASSERT_EQ(ring_[row * routed_.bytes() + i], std::byte{0xff});
        }
      }
    }
    EXPECT_TRUE(ring_.guards_intact());
  }

  void expect_same_bits_as_written() {
    const size_t q_bytes =
        static_cast<size_t>(shape_.heads) * static_cast<size_t>(layout_.padded_head_dim) * 4;
    for (int64_t row = 0; row < rows_; ++row) {
      const float* q = q_.data() + row * shape_.heads * layout_.padded_head_dim;
      ASSERT_EQ(std::memcmp(routed_row(row), q, q_bytes), 0) << "q of row " << row;
    }
    ASSERT_EQ(std::memcmp(written_.data(), appended_.data(), static_cast<size_t>(written_.size())),
              0);
    EXPECT_TRUE(appended_.guards_intact());
  }

 private:
  static constexpr int32_t kRingRows = 12;
  static constexpr int32_t kSlots = 10;
  static constexpr int32_t kBlocks = 3;

  [[nodiscard]] int64_t columns() const {
    return int64_t{layout_.padded_head_dim} * (shape_.heads + 2 * shape_.kv_heads);
  }
  [[nodiscard]] const std::byte* routed_row(int64_t row) const {
    return ring_.data() + ring_rows_[static_cast<size_t>(row)] * routed_.bytes();
  }

  void expect_residuals_stored() {
    std::vector<bool> used(static_cast<size_t>(store_.size()));
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t i = 0; i < hidden_; ++i) {
        const int64_t at = slots_[static_cast<size_t>(row)] * store_stride_ + i;
        ASSERT_EQ(store_[at], residual_[row * residual_stride_ + i]);
        used[static_cast<size_t>(at)] = true;
      }
    }
    for (int64_t i = 0; i < store_.size(); ++i) {
      ASSERT_TRUE(used[static_cast<size_t>(i)] || std::isnan(store_[i]));
    }
    EXPECT_TRUE(store_.guards_intact());
  }

  double rotated(int64_t row, int64_t head, int64_t dim) {
    const int64_t half = layout_.head_dim / 2;
    if (dim >= layout_.head_dim) {
      return 0.0;
    }
    const float* x = qkv_.data() + row * qkv_stride_ + head * layout_.padded_head_dim;
    double squares = 0.0;
    for (int64_t i = 0; i < layout_.head_dim; ++i) {
      squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    const double factor = 1.0 / std::sqrt(squares / layout_.head_dim + kEpsilon);
    const auto normed = [&](int64_t i) {
      const std::vector<float>& weight = head < shape_.heads ? q_norm_ : k_norm_;
      return shape_.norm ? x[i] * factor * static_cast<double>(weight[static_cast<size_t>(i)])
                         : static_cast<double>(x[i]);
    };
    const double c = cos_[static_cast<size_t>(row * half + dim % half)];
    const double s = sin_[static_cast<size_t>(row * half + dim % half)];
    return dim < half ? normed(dim) * c - normed(dim + half) * s
                      : normed(dim) * c + normed(dim - half) * s;
  }

  const Shape shape_;
  Random random_;
  const KvLayout layout_;
  const RoutedRow routed_;
  const int64_t rows_;
  const int64_t qkv_stride_;
  const int64_t hidden_;
  const int64_t residual_stride_;
  const int64_t store_stride_;
  Guarded<float> qkv_;
  Guarded<float> residual_;
  Guarded<std::byte> ring_;
  Guarded<float> store_;
  Guarded<float> q_;
  Guarded<std::byte> written_;   // the pool that RopeWrite writes
  Guarded<std::byte> appended_;  // the pool that the routed rows are appended to
  const std::vector<int32_t> ring_rows_;
  const std::vector<int32_t> slots_;
  std::vector<float> cos_;
  std::vector<float> sin_;
  std::vector<float> q_norm_;
  std::vector<float> k_norm_;
  std::vector<int32_t> blocks_;
  std::vector<int32_t> token_slots_;
};

class Routing : public testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    if (!can_run(GetParam())) {
      GTEST_SKIP() << "this machine has no " << GetParam().name;
    }
    kernels_ = &table_of(GetParam());
  }
  const Kernels* kernels_ = nullptr;
};

TEST_P(Routing, ARoutedRowHoldsWhatRopeWriteWouldHaveWrittenBitForBit) {
  uint64_t seed = 100;
  for (const ElementType type : {kF32, kBF16}) {
    for (const int32_t head_dim : {2, 8, 22, 64, 80, 128, 256, 512}) {
      for (const bool norm : {false, true}) {
        for (const int32_t kv_heads : {1, 3}) {
          ++seed;
          const auto group = static_cast<int32_t>(1 + seed % 4);
          Tail tail({type, kv_heads * group, kv_heads, head_dim, norm}, seed);
          tail.route(*kernels_);
          tail.expect_right();
          tail.write(*kernels_);
          tail.append(*kernels_);
          tail.expect_same_bits_as_written();
          tail.append(*kernels_);  // once more changes nothing
          tail.expect_same_bits_as_written();
        }
      }
    }
  }
}

struct GatherCase {
  bool attended = true;
  bool residual = true;
};

void gather_and_check(const Kernels& kernels, const GatherCase& wanted, uint64_t seed) {
  Random random(seed);
  const int64_t rows = pick(random, 1, 9);
  const int64_t row_bytes = pick(random, 1, 20) * 64;
  const int64_t pitch = row_bytes + pick(random, 0, 3) * 64;
  const int64_t columns = pick(random, 1, 150);
  const int64_t store_stride = columns + pick(random, 0, 30);
  const int64_t residual_stride = columns + pick(random, 0, 30);
  const int64_t sources = 11;
  Guarded<std::byte> returns(sources * row_bytes);
  Guarded<float> store(sources * store_stride);
  std::generate_n(returns.data(), returns.size(),
                  [&] { return static_cast<std::byte>(pick(random, 0, 254)); });
  std::generate_n(store.data(), store.size(), [&] { return uniform(random, -1.0F, 1.0F); });
  const std::vector<int32_t> return_rows = distinct(random, rows, sources);
  const std::vector<int32_t> slots = distinct(random, rows, sources);
  Guarded<std::byte> attended(rows * pitch);
  Guarded<float> residual(rows * residual_stride);
  const TailGatherArgs args{.rows = rows,
                            .returns = returns.data(),
                            .attended_row_bytes = row_bytes,
                            .return_rows = return_rows.data(),
                            .attended = wanted.attended ? attended.data() : nullptr,
                            .attended_pitch_bytes = pitch,
                            .residual_store = store.data(),
                            .store_stride = store_stride,
                            .residual_slots = slots.data(),
                            .residual = wanted.residual ? residual.data() : nullptr,
                            .residual_stride = residual_stride,
                            .residual_columns = columns};
  kernels.tail_gather(args, rows / 3, rows);
  kernels.tail_gather(args, 0, rows / 3);
  for (int64_t i = 0; i < attended.size(); ++i) {
    const bool copied = wanted.attended && i % pitch < row_bytes;
    const int64_t from = return_rows[static_cast<size_t>(i / pitch)] * row_bytes + i % pitch;
    ASSERT_EQ(attended[i], copied ? returns[from] : std::byte{0xff}) << "byte " << i;
  }
  for (int64_t i = 0; i < residual.size(); ++i) {
    const int64_t row = i / residual_stride;
    const int64_t column = i % residual_stride;
    if (wanted.residual && column < columns) {
      ASSERT_EQ(residual[i], store[slots[static_cast<size_t>(row)] * store_stride + column]);
    } else {
      ASSERT_TRUE(std::isnan(residual[i]));
    }
  }
  EXPECT_TRUE(attended.guards_intact());
  EXPECT_TRUE(residual.guards_intact());
}

TEST_P(Routing, TailRowsComeFromTheirReturnRowsAndResidualSlots) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    gather_and_check(*kernels_, {}, seed);
  }
}

TEST_P(Routing, AttentionResultsAndResidualsAlsoTravelAlone) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    gather_and_check(*kernels_, {.attended = false}, seed);
    gather_and_check(*kernels_, {.residual = false}, seed);
  }
}

TEST(RoutedRow, PartsFollowEachOtherOnCacheLines) {
  for (const ElementType type : {kF32, kBF16}) {
    const KvLayout layout{type, 2, 3, 40, 64, 16};
    const RoutedRow row(layout, 6);
    EXPECT_EQ(row.key_offset(), 6 * 64 * 4);
    EXPECT_EQ(row.value_offset() - row.key_offset(), 3 * 64 * element_bytes(type));
    EXPECT_EQ(row.bytes() - row.value_offset(), 3 * 64 * element_bytes(type));
    EXPECT_EQ(row.key_offset() % kRoutedAlignment, 0);
    EXPECT_EQ(row.value_offset() % kRoutedAlignment, 0);
    EXPECT_EQ(row.bytes() % kRoutedAlignment, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryFamily, Routing, testing::ValuesIn(known_families()),
                         [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace tandem::kernels
