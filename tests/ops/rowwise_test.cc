// Norms, RoPE with the KV write, SiLU*mul and gathers of every kernel family against
// double-precision oracles.
#include <gtest/gtest.h>

#include "families.h"
#include "kernels/kernels.h"

namespace tandem::kernels {
namespace {

using ElementType::kBF16;
using ElementType::kF32;

double tolerance(ElementType type) { return type == kF32 ? 1e-6 : 5e-3; }

std::vector<float> floats_of(const Guarded<std::byte>& memory, ElementType type) {
  std::vector<float> values(static_cast<size_t>(memory.size() / element_bytes(type)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = get(memory.data(), type, static_cast<int64_t>(i));
  }
  return values;
}

class Rowwise : public testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    if (!can_run(GetParam())) {
      GTEST_SKIP() << "this machine has no " << GetParam().name;
    }
    kernels_ = &table_of(GetParam());
  }
  const Kernels* kernels_ = nullptr;
};

TEST_P(Rowwise, RmsNormAgreesAndPadsWithZeros) {
  Random random(1);
  for (const ElementType type : {kF32, kBF16}) {
    for (const int64_t hidden : {1, 7, 32, 172, 1000, 2048}) {
      const int64_t rows = 5;
      const int64_t x_stride = hidden + pick(random, 0, 40);
      const int64_t y_stride = (hidden + 31) / 32 * 32;
      Guarded<float> x(rows * x_stride);
      Guarded<float> weight(hidden);
      Guarded<std::byte> y(rows * y_stride * element_bytes(type));
      std::vector<double> wanted(static_cast<size_t>(rows * y_stride), 0.0);
      for (int64_t i = 0; i < hidden; ++i) {
        weight[i] = uniform(random, -2.0F, 2.0F);
      }
      for (int64_t row = 0; row < rows; ++row) {
        double squares = 0.0;
        for (int64_t i = 0; i < hidden; ++i) {
          const float value = uniform(random, -3.0F, 3.0F);
          x[row * x_stride + i] = value;
          squares += static_cast<double>(value) * static_cast<double>(value);
        }
        for (int64_t i = 0; i < hidden; ++i) {
          wanted[static_cast<size_t>(row * y_stride + i)] =
              static_cast<double>(x[row * x_stride + i]) * static_cast<double>(weight[i]) /
              std::sqrt(squares / static_cast<double>(hidden) + 1e-5);
        }
      }
      RmsNormArgs args{x.data(), x_stride, rows, hidden,  weight.data(),
                       1e-5F,    y.data(), type, y_stride};
      kernels_->rms_norm(args, 0, 2);
      kernels_->rms_norm(args, 2, rows);
      const std::vector<float> got = floats_of(y, type);
      EXPECT_LT(relative_error(got, wanted), tolerance(type)) << "hidden " << hidden;
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = hidden; i < y_stride; ++i) {
          ASSERT_EQ(got[static_cast<size_t>(row * y_stride + i)], 0.0F);
        }
      }
      EXPECT_TRUE(y.guards_intact());
    }
  }
}

TEST_P(Rowwise, RopeTableIsExactAtPositionsFarOut) {
  const std::vector<int32_t> positions = {0, 1, 131071, 1000003};
  const std::vector<double> frequencies = {1.0, 0.1234567, 1e-5};
  std::vector<float> cos(12, NAN);
  std::vector<float> sin(12, NAN);
  const RopeTableArgs args{positions.data(), 4,         frequencies.data(), 3, 1.25F,
                           cos.data(),       sin.data()};
  kernels_->rope_table(args, 0, 1);
  kernels_->rope_table(args, 1, 4);
  for (size_t row = 0; row < 4; ++row) {
    for (size_t i = 0; i < 3; ++i) {
      const double angle = positions[row] * frequencies[i];
      EXPECT_NEAR(cos[row * 3 + i], std::cos(angle) * 1.25, 1e-7);
      EXPECT_NEAR(sin[row * 3 + i], std::sin(angle) * 1.25, 1e-7);
    }
  }
}

enum class HeadNorm { kNone, kRms };

struct RopeCase {
  ElementType type = kBF16;
  int32_t head_dim = 64;
  int32_t block_tokens = 32;
  HeadNorm norm = HeadNorm::kNone;
};

class RopeWriter {
 public:
  RopeWriter(const RopeCase& rope, uint64_t seed) : random_(seed) {
    layout_ = {rope.type, 2, 3, rope.head_dim, (rope.head_dim + 31) / 32 * 32, rope.block_tokens};
    const int64_t width = layout_.padded_head_dim;
    stride_ = (kHeads + 2 * layout_.kv_heads) * width + 32;
    qkv_ = std::make_unique<Guarded<float>>(kRows * stride_);
    q_ = std::make_unique<Guarded<float>>(kRows * kHeads * width);
    pool_ = std::make_unique<Guarded<std::byte>>(kBlocks * layout_.block_bytes());
    for (int64_t i = 0; rope.norm == HeadNorm::kRms && i < layout_.head_dim; ++i) {
      q_norm_.push_back(uniform(random_, 0.5F, 1.5F));
      k_norm_.push_back(uniform(random_, -1.5F, -0.5F));
    }
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < (kHeads + 2 * layout_.kv_heads) * width; ++i) {
        const bool real = i % width < layout_.head_dim;
        (*qkv_)[row * stride_ + i] = real ? uniform(random_, -3.0F, 3.0F) : 0.0F;
      }
      for (int64_t i = 0; i < layout_.head_dim / 2; ++i) {
        const float angle = uniform(random_, 0.0F, 6.0F);
        cos_.push_back(std::cos(angle));
        sin_.push_back(std::sin(angle));
      }
      // Rows of one sequence side by side, and a far block.
      blocks_.push_back(row < 5 ? 2 : 0);
      slots_.push_back(static_cast<int32_t>((row * 3 + 5) % rope.block_tokens));
    }
  }

  void write(const Kernels& kernels) {
    RopeWriteArgs args;
    args.qkv = qkv_->data();
    args.qkv_stride = stride_;
    args.rows = kRows;
    args.cos = cos_.data();
    args.sin = sin_.data();
    args.heads = kHeads;
    args.layout = layout_;
    args.layer = 1;
    args.kv = pool_->data();
    args.blocks = blocks_.data();
    args.slots = slots_.data();
    args.q = q_->data();
    if (!q_norm_.empty()) {
      args.q_norm = q_norm_.data();
      args.k_norm = k_norm_.data();
      args.norm_epsilon = static_cast<float>(kEpsilon);
    }
    kernels.rope_write(args, 0, 3);
    kernels.rope_write(args, 3, kRows);
  }

  void check() {
    const int64_t width = layout_.padded_head_dim;
    std::vector<bool> written(static_cast<size_t>(pool_->size() / element_bytes(layout_.type)));
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t head = 0; head < kHeads; ++head) {
        for (int64_t dim = 0; dim < width; ++dim) {
          ASSERT_NEAR((*q_)[(row * kHeads + head) * width + dim], rotated(row, head, dim), 1e-5);
        }
      }
      for (int64_t head = 0; head < layout_.kv_heads; ++head) {
        const int64_t block = blocks_[static_cast<size_t>(row)];
        const int64_t slot = slots_[static_cast<size_t>(row)];
        const int64_t key = layout_.key_offset(block, 1, head);
        const int64_t value = layout_.value_offset(block, 1, head);
        for (int64_t dim = 0; dim < width; ++dim) {
          const double v =
              (*qkv_)[row * stride_ + (kHeads + layout_.kv_heads + head) * width + dim];
          expect_element(key, layout_.key_element(slot, dim), rotated(row, kHeads + head, dim),
                         written);
          expect_element(value, layout_.value_element(slot, dim), v, written);
        }
      }
    }
    for (int64_t i = 0; i < static_cast<int64_t>(written.size()); ++i) {
      if (!written[static_cast<size_t>(i)]) {
        ASSERT_TRUE(std::isnan(get(pool_->data(), layout_.type, i))) << "element " << i;
      }
    }
    EXPECT_TRUE(pool_->guards_intact());
    EXPECT_TRUE(q_->guards_intact());
  }

 private:
  static constexpr int64_t kRows = 7;
  static constexpr int64_t kBlocks = 3;
  static constexpr int32_t kHeads = 6;
  static constexpr double kEpsilon = 1e-3;

  double rotated(int64_t row, int64_t head, int64_t dim) {
    const int64_t half = layout_.head_dim / 2;
    if (dim >= layout_.head_dim) {
      return 0.0;
    }
    const float* x = qkv_->data() + row * stride_ + head * layout_.padded_head_dim;
    const double c = cos_[static_cast<size_t>(row * half + dim % half)];
    const double s = sin_[static_cast<size_t>(row * half + dim % half)];
    const auto normed = [&](int64_t i) { return x[i] * norm_factor(x, head, i); };
    return dim < half ? normed(dim) * c - normed(dim + half) * s
                      : normed(dim) * c + normed(dim - half) * s;
  }

  double norm_factor(const float* x, int64_t head, int64_t dim) {
    if (q_norm_.empty()) {
      return 1.0;
    }
    double squares = 0.0;
    for (int64_t i = 0; i < layout_.head_dim; ++i) {
      squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    const std::vector<float>& weight = head < kHeads ? q_norm_ : k_norm_;
    return static_cast<double>(weight[static_cast<size_t>(dim)]) /
           std::sqrt(squares / layout_.head_dim + kEpsilon);
  }

  void expect_element(int64_t offset, int64_t element, double wanted, std::vector<bool>& written) {
    const float got = get(pool_->data() + offset, layout_.type, element);
    ASSERT_NEAR(got, wanted, layout_.type == kF32 ? 1e-5 : 0.02);
    written[static_cast<size_t>(offset / element_bytes(layout_.type) + element)] = true;
  }

  Random random_;
  KvLayout layout_;
  int64_t stride_ = 0;
  std::unique_ptr<Guarded<float>> qkv_;
  std::unique_ptr<Guarded<float>> q_;
  std::unique_ptr<Guarded<std::byte>> pool_;
  std::vector<float> cos_;
  std::vector<float> sin_;
  std::vector<float> q_norm_;
  std::vector<float> k_norm_;
  std::vector<int32_t> blocks_;
  std::vector<int32_t> slots_;
};

TEST_P(Rowwise, RopeWritesQueriesAndTheTokensOwnSlotsOnly) {
  uint64_t seed = 3;
  for (const ElementType type : {kF32, kBF16}) {
    for (const int32_t head_dim : {8, 22, 64, 80, 128, 256}) {
      for (const int32_t block_tokens : {32, 64}) {
        RopeWriter writer({type, head_dim, block_tokens}, ++seed);
        writer.write(*kernels_);
        writer.check();
      }
    }
  }
}

TEST_P(Rowwise, HeadsAreNormedBeforeTheyAreRotated) {
  uint64_t seed = 30;
  for (const ElementType type : {kF32, kBF16}) {
    for (const int32_t head_dim : {8, 22, 64, 128, 512}) {
      RopeWriter writer({type, head_dim, 32, HeadNorm::kRms}, ++seed);
      writer.write(*kernels_);
      writer.check();
    }
  }
}

TEST_P(Rowwise, RowGatherCopiesTheNamedRows) {
  Random random(5);
  Guarded<float> x(6 * 37);
  Guarded<float> y(4 * 37);
  for (int64_t i = 0; i < x.size(); ++i) {
    x[i] = uniform(random, -1.0F, 1.0F);
  }
  const std::vector<int32_t> rows = {5, 0, 3, 3};
  const RowGatherArgs args{x.data(), 37, rows.data(), 4, y.data()};
  kernels_->row_gather(args, 0, 1);
  kernels_->row_gather(args, 1, 4);
  for (int64_t row = 0; row < 4; ++row) {
    for (int64_t i = 0; i < 37; ++i) {
      EXPECT_EQ(y[row * 37 + i], x[rows[static_cast<size_t>(row)] * 37 + i]);
    }
  }
  EXPECT_TRUE(y.guards_intact());
}

TEST(KvLayout, EveryElementOfABlockHasItsOwnPlace) {
  for (const ElementType type : {kF32, kBF16}) {
    const KvLayout layout{type, 2, 3, 40, 64, 16};
    std::vector<int> uses(static_cast<size_t>(2 * layout.block_bytes() / element_bytes(type)));
    for (int64_t block = 0; block < 2; ++block) {
      for (int64_t layer = 0; layer < 2; ++layer) {
        for (int64_t head = 0; head < 3; ++head) {
          const int64_t key = layout.key_offset(block, layer, head) / element_bytes(type);
          const int64_t value = layout.value_offset(block, layer, head) / element_bytes(type);
          for (int64_t slot = 0; slot < 16; ++slot) {
            for (int64_t dim = 0; dim < 64; ++dim) {
              ++uses[static_cast<size_t>(key + layout.key_element(slot, dim))];
              ++uses[static_cast<size_t>(value + layout.value_element(slot, dim))];
            }
          }
        }
      }
    }
    for (const int count : uses) {
      ASSERT_EQ(count, 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryFamily, Rowwise, testing::ValuesIn(known_families()),
                         [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace tandem::kernels
