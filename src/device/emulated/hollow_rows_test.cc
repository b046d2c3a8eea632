#include "device/emulated/hollow_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tandem::device {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

GemmOp gemm_into(std::vector<float>& y, int64_t rows, int64_t stride, int64_t n) {
  return {.rows = rows, .w = {.n = n, .k = 32}, .y = y.data(), .y_stride = stride};
}

bool finite(const std::vector<float>& values, int64_t begin, int64_t count) {
  for (int64_t i = begin; i < begin + count; ++i) {
    if (!std::isfinite(values[static_cast<size_t>(i)])) {
      return false;
    }
  }
  return true;
}

TEST(HollowRows, DenseOpsLeaveFiniteNumbersInTheirColumnsOnly) {
  HollowRows hollow(1);
  std::vector<float> y(3 * 50, kNaN);
  EXPECT_TRUE(hollow.stand_in(gemm_into(y, 2, 50, 32)));
  for (int64_t row = 0; row < 2; ++row) {
    EXPECT_TRUE(finite(y, row * 50, 32));
    EXPECT_TRUE(std::isnan(y[static_cast<size_t>(row * 50 + 32)]));
  }
  EXPECT_TRUE(std::isnan(y[100]));
  EXPECT_NE(y[0], y[50]);
}

TEST(HollowRows, WhatIsWrittenIsNotWrittenAgainButMoreRowsAre) {
  HollowRows hollow(1);
  std::vector<float> y(8 * 40, kNaN);
  hollow.stand_in(gemm_into(y, 2, 40, 32));
  y[0] = 7.0F;
  hollow.stand_in(gemm_into(y, 2, 40, 32));
  EXPECT_EQ(y[0], 7.0F);
  hollow.stand_in(gemm_into(y, 4, 40, 32));
  EXPECT_EQ(y[0], 7.0F);
  EXPECT_TRUE(finite(y, 3 * 40, 32));
  // A tail behind the first rows belongs to the same buffer.
  GemmOp tail = gemm_into(y, 3, 40, 32);
  tail.y = y.data() + 3 * 40;
  hollow.stand_in(tail);
  EXPECT_TRUE(finite(y, 5 * 40, 32));
  EXPECT_TRUE(std::isnan(y[6 * 40]));
}

TEST(HollowRows, LogitsAreWrittenAgainAfterSamplingUsedThem) {
  HollowRows hollow(1);
  std::vector<float> logits(2 * 64, kNaN);
  hollow.stand_in(gemm_into(logits, 2, 64, 64));
  const std::vector<float> first = logits;
  EXPECT_FALSE(hollow.stand_in(SampleOp{.logits = logits.data()}));
  logits.assign(logits.size(), kNaN);
  hollow.stand_in(gemm_into(logits, 2, 64, 64));
  EXPECT_EQ(logits, first);
}

TEST(HollowRows, HalvesOfWhatAGatherMovesAreFiniteToo) {
  HollowRows hollow(1);
  std::vector<float> y(100, kNaN);
  EXPECT_TRUE(hollow.stand_in(RowGatherOp{.stride = 50, .count = 2, .y = y.data()}));
  const auto* halves = reinterpret_cast<const BFloat16*>(y.data());
  for (int i = 0; i < 200; ++i) {
    EXPECT_TRUE(std::isfinite(bf16_to_f32(halves[i])));
  }
}

TEST(HollowRows, RoutesCopiesAndSamplingStayReal) {
  HollowRows hollow(1);
  EXPECT_FALSE(hollow.stand_in(CopyOp{}));
  EXPECT_FALSE(hollow.stand_in(RopeRouteOp{}));
  EXPECT_FALSE(hollow.stand_in(TailGatherOp{}));
  EXPECT_FALSE(hollow.stand_in(SampleOp{}));
}

TEST(HollowRows, ABufferOfManyShapesIsForgottenRatherThanRememberedForever) {
  HollowRows hollow(1);
  std::vector<float> y(1000, kNaN);
  for (int64_t n = 1; n <= 900; ++n) {
    hollow.stand_in(gemm_into(y, 1, 1000, n));
    ASSERT_TRUE(finite(y, 0, n));
  }
}

}  // namespace
}  // namespace tandem::device
