#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace tandem {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) {
    return invalid_argument("odd", "x");
  }
  return x / 2;
}

Result<int> quarter(int x) {
  ASSIGN_OR_RETURN(const int h, half(x));
  return half(h);
}

TEST(Result, CarriesValueOrError) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).error().param, "x");
  EXPECT_FALSE(quarter(3).ok());
}

TEST(Result, MovesOwningValuesOut) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  std::unique_ptr<int> value = std::move(result).value();
  EXPECT_EQ(*value, 7);
}

TEST(ResultDeathTest, ValueOfAnErrorIsABug) { EXPECT_DEATH((void)half(3).value(), "odd"); }

}  // namespace
}  // namespace tandem
