#include "device/cpu/op_times.h"

#include <gtest/gtest.h>

#include <array>

#include "device/cpu/cpu_device.h"

namespace tandem::device {
namespace {

GemmOp product(int64_t n, int64_t k) {
  GemmOp args;
  args.w.n = n;
  args.w.k = k;
  return args;
}

TEST(OpTimes, AddsUpByKindAndByTheShapeOfAProduct) {
  OpTimes times;
  times.add(CopyOp{}, Nanos{1});
  times.add(product(64, 32), Nanos{10});
  times.add(product(32, 64), Nanos{100});
  times.add(product(64, 32), Nanos{1000});
  times.add(CopyOp{}, Nanos{3});
  const std::vector<OpTime> taken = times.take();
  ASSERT_EQ(taken.size(), 3U);
  EXPECT_EQ(taken[0].name, "copy");
  EXPECT_EQ(taken[0].count, 2);
  EXPECT_EQ(taken[0].total, Nanos{4});
  EXPECT_EQ(taken[1].name, "gemm 64 x 32");
  EXPECT_EQ(taken[1].count, 2);
  EXPECT_EQ(taken[1].total, Nanos{1010});
  EXPECT_EQ(taken[2].name, "gemm 32 x 64");
}

TEST(OpTimes, TakingStartsAfresh) {
  OpTimes times;
  times.add(CopyOp{}, Nanos{1});
  EXPECT_EQ(times.take().size(), 1U);
  EXPECT_TRUE(times.take().empty());
}

TEST(OpTimes, ADeviceTimesEveryOpItRunsAndRunsItAsWithout) {
  OpTimes times;
  const auto device = make_cpu_device({.threads = 1, .op_times = &times});
  ASSERT_TRUE(device.ok());
  const std::array<int32_t, 2> source = {7, 8};
  std::array<int32_t, 2> target = {};
  const StreamId stream = (*device)->create_stream();
  for (int i = 0; i < 3; ++i) {
    (*device)->launch(stream, CopyOp{target.data(), source.data(), sizeof(source)});
  }
  (*device)->synchronize((*device)->record(stream));
  EXPECT_EQ(target, source);
  const std::vector<OpTime> taken = times.take();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].count, 3);
  EXPECT_GE(taken[0].total, Nanos{0});
}

}  // namespace
}  // namespace tandem::device
