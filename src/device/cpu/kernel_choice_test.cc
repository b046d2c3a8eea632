#include "device/cpu/kernel_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cpu/cpu_device.h"
#include "device/cpu/worker_pool.h"

namespace tandem::device {
namespace {

using kernels::Isa;
using ::testing::HasSubstr;

std::vector<Isa> families() {
  std::vector<Isa> isas = kernels::available_isas();
  std::erase(isas, Isa::kRef);
  return isas;
}

TEST(KernelChoice, EveryFamilyIsTimedAtEveryNumberOfRows) {
  auto pool = WorkerPool::create({.threads = 2});
  ASSERT_TRUE(pool.ok());
  const std::vector<kernels::ProductTimes> times =
      measure_products({.n = 96, .k = 100, .weight_bytes = 1}, families(), **pool);
  ASSERT_EQ(times.size(), families().size());
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_EQ(times[i].isa, families()[i]);
    for (const double seconds : times[i].seconds) {
      EXPECT_GT(seconds, 0);
      EXPECT_LT(seconds, 60);
    }
  }
  if (times.size() > 1) {
    EXPECT_THAT(describe_times(times), HasSubstr("with 1, 4, 16, 64, 512 rows: avx2 "));
  }
}

TEST(KernelChoice, WhatCannotMatterIsNotMeasured) {
  auto pool = WorkerPool::create({.threads = 1});
  ASSERT_TRUE(pool.ok());
  const Isa usual = kernels::available_isas().back();
  constexpr int64_t kLarge = int64_t{1} << 40;
  for (const std::optional<ProductShape>& shape :
       {std::optional<ProductShape>{},
        std::optional(ProductShape{.n = 64, .k = 64, .weight_bytes = 1 << 20}),
        std::optional(ProductShape{.n = 0, .k = 64, .weight_bytes = kLarge}),
        std::optional(
            ProductShape{.n = 64, .k = 64, .weight_bytes = kLarge, .type = ElementType::kF32})}) {
    const KernelChoice choice = choose_kernels(shape, **pool);
    EXPECT_EQ(choice.choice, kernels::Choice(usual));
    EXPECT_EQ(choice.times, "");
  }
}

TEST(KernelChoice, ALargeModelIsMeasuredAndItsDeviceSaysByWhat) {
  if (families().size() < 2) {
    GTEST_SKIP() << "one family here";
  }
  const ProductShape shape{.n = 256, .k = 256, .weight_bytes = int64_t{1} << 40};
  const auto device = make_cpu_device({.threads = 2, .products = shape});
  ASSERT_TRUE(device.ok());
  const AcceleratorCaps& caps = (*device)->caps();
  EXPECT_THAT(caps.kernel_why, HasSubstr("rows: "));
  const auto named = kernels::parse_choice(caps.kernels);
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(named->isa, (*device)->host().isa);
  // The same name gives the same kernels, and measures nothing.
  const auto again = make_cpu_device({.threads = 2, .isa = *named, .products = shape});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)->caps().kernels, caps.kernels);
  EXPECT_EQ((*again)->caps().kernel_why, "");
}

TEST(KernelChoice, ADeviceRefusesToMixWhatDiffers) {
  const auto mixed = kernels::parse_choice(
      std::string("ref:4,") + std::string(kernels::isa_name(kernels::available_isas().back())));
  ASSERT_TRUE(mixed.ok());
  if (mixed->isa == Isa::kRef) {
    GTEST_SKIP() << "one family here";
  }
  const auto device = make_cpu_device({.isa = *mixed});
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().param, "isa");
}

}  // namespace
}  // namespace tandem::device
