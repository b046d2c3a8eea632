#include "bench/device_work.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem::bench {
namespace {

using device::AttentionOp;
using kernels::AttentionSlice;

AttentionOp attention_of(const std::vector<AttentionSlice>& slices, int32_t window) {
  AttentionOp op{.batch = {.host_slices = slices.data(),
                           .layout = {ElementType::kBF16, 2, 8, 128, 128, 32},
                           .heads = 32,
                           .window = window}};
  op.batch.shape.slices = static_cast<int32_t>(slices.size());
  for (const AttentionSlice& slice : slices) {
    op.batch.shape.rows += slice.row_count;
  }
  return op;
}

TEST(DeviceWork, AProductReadsWeightsAndRowsAndWritesItsResult) {
  const device::WeightMatrix w{.n = 6144, .k = 4096, .stored_bytes = 6144 * 4096 * 2};
  const Work work = work_of(device::GemmOp{.x_stride = 4096, .rows = 16, .w = w, .y_stride = 6144});
  EXPECT_EQ(work.operations, 2.0 * 16 * 6144 * 4096);
  EXPECT_EQ(work.bytes, 6144.0 * 4096 * 2 + 16.0 * 4096 * 2 + 16.0 * 6144 * 4);
  const Work sum = work_of(
      device::GemmOp{.x_stride = 4096, .rows = 16, .w = w, .y_stride = 6144, .accumulate = true});
  EXPECT_EQ(sum.bytes, work.bytes + 16.0 * 6144 * 4) << "what is added to is read, too";
}

TEST(DeviceWork, GateAndUpWriteHalfAsManyColumns) {
  const device::WeightMatrix w{.n = 28672, .k = 4096, .stored_bytes = 28672 * 4096 * 2};
  const Work work =
      work_of(device::GateUpOp{.x_stride = 4096, .rows = 4, .w = w, .activated_stride = 14336});
  EXPECT_EQ(work.operations, 2.0 * 4 * 28672 * 4096);
  EXPECT_EQ(work.bytes, 28672.0 * 4096 * 2 + 4.0 * 4096 * 2 + 4.0 * 14336 * 2);
}

TEST(DeviceWork, ADecodeReadsItsWholeContextOnce) {
  const Work work = work_of(attention_of({{0, 1, 2047, nullptr}, {1, 1, 511, nullptr}}, 0));
  EXPECT_EQ(work.bytes, (2048.0 + 512) * 2 * 8 * 128 * 2 + 2 * 4096.0 * (4 + 2));
  EXPECT_EQ(work.operations, 4.0 * (2048 + 512) * 32 * 128);
}

TEST(DeviceWork, APromptAttendsToHalfOfItsSquare) {
  const Work work = work_of(attention_of({{0, 1024, 0, nullptr}}, 0));
  EXPECT_EQ(work.operations, 4.0 * (1024.0 * 1025 / 2) * 32 * 128);
  const Work chunk = work_of(attention_of({{0, 24, 1000, nullptr}}, 0));
  EXPECT_EQ(chunk.operations, 4.0 * (1024.0 * 1025 / 2 - 1000.0 * 1001 / 2) * 32 * 128);
  EXPECT_EQ(chunk.bytes, 1024.0 * 2 * 8 * 128 * 2 + 24 * 4096.0 * (4 + 2));
}

TEST(DeviceWork, AWindowLimitsWhatIsReadAndComputed) {
  const Work decode = work_of(attention_of({{0, 1, 2047, nullptr}}, 100));
  EXPECT_EQ(decode.operations, 4.0 * 100 * 32 * 128);
  EXPECT_EQ(decode.bytes, 100.0 * 2 * 8 * 128 * 2 + 4096.0 * (4 + 2));
  const Work prompt = work_of(attention_of({{0, 300, 0, nullptr}}, 100));
  EXPECT_EQ(prompt.operations, 4.0 * (100.0 * 101 / 2 + 200.0 * 100) * 32 * 128);
}

TEST(DeviceWork, RopeWritesItsTokensOnly) {
  device::RopeWriteOp op;
  op.layout = {ElementType::kBF16, 2, 8, 128, 128, 32};
  op.heads = 32;
  op.rows = 10;
  op.qkv_stride = 6144;
  const double row = 6144 * 4 + 2 * 64 * 4 + 2 * 4 + 4096 * 4 + 2 * 8 * 128 * 2;
  EXPECT_EQ(work_of(op).bytes, 10 * row);
}

TEST(DeviceWork, TheSlowerOfMovingAndComputingIsTheCeiling) {
  const DeviceCeilings ceilings{.bytes_per_second = 100, .operations_per_second = 1000};
  EXPECT_EQ(ceiling_seconds({.bytes = 200, .operations = 1000}, ceilings), 2);
  EXPECT_EQ(ceiling_seconds({.bytes = 200, .operations = 3000}, ceilings), 3);
  EXPECT_EQ(ceiling_seconds({.bytes = 200, .operations = 3000}, {}), 0);
}

}  // namespace
}  // namespace tandem::bench
