#include "kernels/cast.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "cuda_kernels.h"

namespace tandem::kernels {
namespace {

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

// Every number of 16 bits, of the type.
std::vector<uint16_t> all_words() {
  std::vector<uint16_t> words(1 << 16);
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = static_cast<uint16_t>(i);
  }
  return words;
}

class Cast : public testing::TestWithParam<decltype(&cast)> {};

TEST_P(Cast, WidensEveryNumberExactly) {
  const std::vector<uint16_t> words = all_words();
  for (const ElementType type : {ElementType::kBF16, ElementType::kF16}) {
    std::vector<float> wide(words.size());
    const CastArgs args{.x = words.data(),
                        .x_type = type,
                        .x_stride = 256,
                        .rows = 256,
                        .columns = 256,
                        .y = wide.data(),
                        .y_type = ElementType::kF32,
                        .y_stride = 256};
    GetParam()(args, 0, 100);
    GetParam()(args, 100, 256);
    for (size_t i = 0; i < words.size(); ++i) {
      const float expected =
          type == ElementType::kBF16 ? bf16_to_f32(words[i]) : f16_to_f32(words[i]);
      ASSERT_EQ(bits(wide[i]), bits(expected)) << element_name(type) << " " << i;
    }
  }
}

TEST_P(Cast, NarrowsToTheNearestAndLeavesWhatLiesBetweenRows) {
  const std::vector<float> x = {1.0F, 1.00390625F, 1.01171875F, NAN, INFINITY, -0.0F};
  std::vector<BFloat16> y(10, 0x7777);
  GetParam()({.x = x.data(), .x_stride = 3, .rows = 2, .columns = 3, .y = y.data(), .y_stride = 5},
             0, 2);
  EXPECT_EQ(y[0], 0x3f80);
  EXPECT_EQ(y[1], 0x3f80) << "halfway, to even";
  EXPECT_EQ(y[2], 0x3f82) << "halfway, to even";
  EXPECT_EQ(y[3], 0x7777);
  EXPECT_EQ(y[4], 0x7777);
  EXPECT_TRUE(std::isnan(bf16_to_f32(y[5])));
  EXPECT_EQ(bf16_to_f32(y[6]), INFINITY);
  EXPECT_EQ(y[7], 0x8000);
}

INSTANTIATE_TEST_SUITE_P(HostAndCuda, Cast, testing::Values(cast, cuda_cast),
                         [](const auto& each) { return each.index == 0 ? "host" : "cuda"; });

}  // namespace
}  // namespace tandem::kernels
