// Packing weights that are quantised already: integers and scales stay where the target is of their
// kind.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/float16.h"
#include "gemm_sources.h"

namespace tandem::kernels {
namespace {

struct Kinds {
  Quantization source;
  Quantization target;
};

constexpr Kinds kKinds[] = {{Quantization::kInt8, Quantization::kInt8},
                            {Quantization::kInt4, Quantization::kInt4},
                            {Quantization::kInt4Symmetric, Quantization::kInt4Symmetric},
                            {Quantization::kInt4Symmetric, Quantization::kInt4},
                            {Quantization::kInt4Symmetric, Quantization::kInt8},
                            {Quantization::kInt4, Quantization::kInt8}};

QuantizedGroup random_group(Random& random, Quantization kind) {
  QuantizedGroup group;
  group.scale = f32_to_f16(uniform(random, -0.1F, 0.1F));
  group.minimum = has_minimum(kind) ? f32_to_f16(uniform(random, -1.0F, 1.0F)) : uint16_t{0};
  for (int8_t& value : group.values) {
    value = static_cast<int8_t>(kind == Quantization::kInt8   ? pick(random, -128, 127)
                                : kind == Quantization::kInt4 ? pick(random, 0, 15)
                                                              : pick(random, -8, 7));
  }
  return group;
}

std::vector<float> packed_rows(const Kernels& kernels, PackArgs args) {
  Guarded<std::byte> data(args.target.bytes());
  args.target.data = data.data();
  args.target_data = data.data();
  kernels.pack(args, 0, args.n.padded() / kPanelColumns);
  std::vector<float> rows(static_cast<size_t>(args.target.n * args.target.k));
  for (int64_t row = 0; row < args.target.n; ++row) {
    kernels.unpack_row(args.target, row, rows.data() + row * args.target.k);
  }
  return rows;
}

class PackGroups : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!can_run(GetParam())) {
      GTEST_SKIP() << "this machine cannot run it";
    }
  }

  // The rows of a packed matrix of such groups, and of another, packed from the same values in
  // fp32.
  void pack_both(Kinds kinds, PaddedDim n, PaddedDim k,
                 Activations activations = Activations::kPlain) {
    Random random(static_cast<uint32_t>(n.logical + k.logical));
    groups_.clear();
    values_.clear();
    for (int64_t i = 0; i < n.logical * k.logical / kQuantizedGroup; ++i) {
      groups_.push_back(random_group(random, kinds.source));
      for (int64_t at = 0; at < kQuantizedGroup; ++at) {
        values_.push_back(groups_.back().element(at));
      }
    }
    PackArgs args{.source = groups_.data(), .source_quantization = kinds.source, .n = n, .k = k};
    args.target = {
        .n = n.padded(), .k = k.padded(), .quantization = kinds.target, .activations = activations};
    of_groups_ = packed_rows(table_of(GetParam()), args);
    args.source = values_.data();
    args.source_type = ElementType::kF32;
    args.source_quantization = Quantization::kNone;
    of_values_ = packed_rows(table_of(GetParam()), args);
  }

  std::vector<QuantizedGroup> groups_;
  std::vector<float> values_;
  std::vector<float> of_groups_;
  std::vector<float> of_values_;
};

TEST_P(PackGroups, KeepTheirValuesInTheirKindAndInOneThatHoldsThem) {
  const PaddedDim n{96, 48, 64};
  const PaddedDim k{128, 64, 64};
  for (const Kinds kinds : kKinds) {
    pack_both(kinds, n, k);
    for (int64_t row = 0; row < n.padded(); ++row) {
      const int64_t in_head = row % n.padded_group;
      for (int64_t depth = 0; depth < k.padded(); ++depth) {
        const float packed = of_groups_[static_cast<size_t>(row * k.padded() + depth)];
        if (in_head >= n.group) {
          ASSERT_EQ(packed, 0.0F);
          continue;
        }
        const int64_t at = (row / n.padded_group * n.group + in_head) * k.logical + depth;
        const QuantizedGroup& group = groups_[static_cast<size_t>(at / kQuantizedGroup)];
        const QuantizedGroup stored = convert_group(group, kinds.source, kinds.target);
        ASSERT_EQ(packed, stored.element(at % kQuantizedGroup));
        if (kinds.source == kinds.target || !has_minimum(kinds.source)) {
          ASSERT_EQ(packed, values_[static_cast<size_t>(at)]);
        }
      }
    }
  }
}

// The layout for products of bytes may differ; the values do not.
TEST_P(PackGroups, HoldTheSameForRoundedActivations) {
  const PaddedDim n{96, 48, 64};
  const PaddedDim k{128, 64, 64};
  for (const Kinds kinds : kKinds) {
    pack_both(kinds, n, k);
    const std::vector<float> plain = of_groups_;
    pack_both(kinds, n, k, Activations::kInt8);
    EXPECT_EQ(of_groups_, plain);
  }
}

TEST_P(PackGroups, AreRoundedAnewWherePaddingCutsThem) {
  const PaddedDim heads{160, 80, 96};  // a head ends in the middle of a group
  for (const Kinds kinds : kKinds) {
    pack_both(kinds, whole(64), heads);
    EXPECT_EQ(of_groups_, of_values_);
  }
}

TEST_P(PackGroups, BecomeNumbersForATargetOfNumbers) {
  for (const Quantization source :
       {Quantization::kInt8, Quantization::kInt4, Quantization::kInt4Symmetric}) {
    pack_both({source, Quantization::kNone}, whole(40), whole(96));
    EXPECT_EQ(of_groups_, of_values_);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PackGroups, ::testing::ValuesIn(known_isas()),
                         [](const auto& test) {
                           std::string name(isa_name(test.param));
                           std::erase_if(name, [](char c) { return c == '-' || c == '_'; });
                           return name;
                         });

TEST(ConvertGroup, WidensWithoutLoss) {
  Random random(9);
  for (int round = 0; round < 1000; ++round) {
    const QuantizedGroup group = random_group(random, Quantization::kInt4Symmetric);
    for (const Quantization wider : {Quantization::kInt8, Quantization::kInt4}) {
      const QuantizedGroup wide = convert_group(group, Quantization::kInt4Symmetric, wider);
      for (int64_t i = 0; i < kQuantizedGroup; ++i) {
        ASSERT_EQ(wide.element(i), group.element(i));
      }
    }
  }
}

TEST(ConvertGroup, RoundsWhatDoesNotFit) {
  Random random(10);
  for (int round = 0; round < 1000; ++round) {
    const QuantizedGroup group = random_group(random, Quantization::kInt4);
    const QuantizedGroup rounded = convert_group(group, Quantization::kInt4, Quantization::kInt8);
    float largest = 0.0F;
    for (int64_t i = 0; i < kQuantizedGroup; ++i) {
      largest = std::max(largest, std::abs(group.element(i)));
    }
    for (int64_t i = 0; i < kQuantizedGroup; ++i) {
      ASSERT_NEAR(rounded.element(i), group.element(i), largest / 253.0F);
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
