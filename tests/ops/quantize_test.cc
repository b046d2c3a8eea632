// Rounding of groups of weights to integers with a scale.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/float16.h"
#include "kernels/quantize.h"
#include "machine.h"

namespace tandem::kernels {
namespace {

constexpr int kCount = kQuantizedGroup;
constexpr Quantization kAll[] = {Quantization::kInt8, Quantization::kInt4,
                                 Quantization::kInt4Symmetric};

double squared_error(const QuantizedGroup& group, const float (&values)[kCount]) {
  double sum = 0;
  for (int i = 0; i < kCount; ++i) {
    const double error = static_cast<double>(group.element(i)) - static_cast<double>(values[i]);
    sum += error * error;
  }
  return sum;
}

// A group as GGUF's Q8_0 (largest magnitude 127) or Q4_0 (the extreme is -8) holds it.
QuantizedGroup stored_group(Random& random, Quantization quantization) {
  const bool eight = quantization == Quantization::kInt8;
  QuantizedGroup group;
  const float sign = eight || pick(random, 0, 1) == 0 ? 1.0F : -1.0F;
  const float scale =
      std::ldexp(uniform(random, 0.5F, 1.0F), static_cast<int>(-pick(random, 0, 12)));
  group.scale = f32_to_f16(sign * scale);
  for (int8_t& value : group.values) {
    value = static_cast<int8_t>(eight ? pick(random, -127, 127) : pick(random, -7, 7));
  }
  const auto extreme = static_cast<size_t>(pick(random, 0, kCount - 1));
  group.values[extreme] = static_cast<int8_t>(eight ? 127 : -8);
  return group;
}

TEST(Quantize, GroupsOfTheSameArithmeticAreFoundAgain) {
  Random random(3);
  for (const Quantization quantization : {Quantization::kInt8, Quantization::kInt4Symmetric}) {
    for (int round = 0; round < 2000; ++round) {
      const QuantizedGroup group = stored_group(random, quantization);
      float values[kCount];
      for (int i = 0; i < kCount; ++i) {
        values[i] = group.element(i);
      }
      const QuantizedGroup found = quantize_group(quantization, values);
      ASSERT_EQ(found.scale, group.scale) << quantization_name(quantization);
      ASSERT_TRUE(std::ranges::equal(found.values, group.values));
    }
  }
}

TEST(Quantize, EveryValueIsWithinHalfAStepUnlessItSaturates) {
  Random random(4);
  for (const Quantization quantization : kAll) {
    const bool eight = quantization == Quantization::kInt8;
    const int min = eight ? -127 : has_minimum(quantization) ? 0 : -8;
    const int max = eight ? 127 : has_minimum(quantization) ? 15 : 7;
    for (int round = 0; round < 2000; ++round) {
      float values[kCount];
      for (float& value : values) {
        value = std::normal_distribution<float>()(random);
      }
      const QuantizedGroup group = quantize_group(quantization, values);
      const float step = std::fabs(f16_to_f32(group.scale));
      for (int i = 0; i < kCount; ++i) {
        ASSERT_GE(group.values[i], min);
        ASSERT_LE(group.values[i], max);
        if (group.values[i] != min && group.values[i] != max) {
          ASSERT_LE(std::fabs(group.element(i) - values[i]), step * 0.5001F);
        }
      }
    }
  }
}

// Scales of fp16 are subnormal below 6.1e-5.
TEST(Quantize, Int8KeepsItsBoundInSmallGroups) {
  Random random(6);
  for (float size = 10.0F; size > 1e-9F; size *= 0.7F) {
    for (int round = 0; round < 100; ++round) {
      float values[kCount];
      float largest = 0.0F;
      for (float& value : values) {
        value = uniform(random, -size, size);
        largest = std::max(largest, std::fabs(value));
      }
      const QuantizedGroup group = quantize_group(Quantization::kInt8, values);
      for (int i = 0; i < kCount; ++i) {
        ASSERT_LE(std::fabs(group.element(i) - values[i]), largest * 1.001F / 254 + 0x1p-25F)
            << size;
      }
    }
  }
}

TEST(Quantize, ScalesOfInt4AreNoWorseThanTheUsualOne) {
  Random random(5);
  double usual = 0;
  double chosen = 0;
  double with_minima = 0;
  for (int round = 0; round < 500; ++round) {
    float values[kCount];
    float extreme = 0;
    for (float& value : values) {
      value = std::normal_distribution<float>()(random);
      extreme = std::fabs(value) > std::fabs(extreme) ? value : extreme;
    }
    QuantizedGroup plain;
    plain.scale = f32_to_f16(extreme / -8);
    for (int i = 0; i < kCount; ++i) {
      const float q = std::nearbyint(values[i] / f16_to_f32(plain.scale));
      plain.values[i] = static_cast<int8_t>(std::clamp(q, -8.0F, 7.0F));
    }
    const double plain_error = squared_error(plain, values);
    const double error =
        squared_error(quantize_group(Quantization::kInt4Symmetric, values), values);
    ASSERT_LE(error, plain_error * 1.0001);
    usual += plain_error;
    chosen += error;
    with_minima += squared_error(quantize_group(Quantization::kInt4, values), values);
  }
  EXPECT_LT(chosen, 0.95 * usual);
  EXPECT_LT(with_minima, 0.8 * usual);
}

TEST(Quantize, AnyFiniteGroupGivesFiniteValues) {
  constexpr float kMax = std::numeric_limits<float>::max();
  for (const Quantization quantization : kAll) {
    for (const float size : {0.0F, 1e-45F, 1e-30F, 1e-9F, 1e6F, 1e30F, kMax}) {
      float values[kCount];
      for (int i = 0; i < kCount; ++i) {
        values[i] = i % 2 == 0 ? size : -size / 2;
      }
      const QuantizedGroup group = quantize_group(quantization, values);
      for (int i = 0; i < kCount; ++i) {
        ASSERT_TRUE(std::isfinite(group.element(i))) << size;
        ASSERT_LE(std::fabs(group.element(i)), std::max(1.2F * size, 1e-6F)) << size;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
