#include "device/emulated/cost_model.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "device/cpu/host_formats.h"

namespace tandem::device {
namespace {

const AcceleratorProfile& profile(std::string_view name) {
  const AcceleratorProfile* found = find_profile(name);
  CHECK(found != nullptr, "{}", name);
  return *found;
}

double micros(Nanos time) { return static_cast<double>(time.count()) / 1e3; }

GemmOp gemm_of(int64_t rows, int64_t n, int64_t k) {
  return {.rows = rows, .w = host_formats().matrix({}, n, k)};
}

TEST(CostModel, KnowsItsAcceleratorsByName) {
  for (const char* name : {"a100", "h100", "h200", "t4", "a10", "xeon-6342", "xeon-8480"}) {
    EXPECT_EQ(profile(name).name, name);
    EXPECT_NE(profile_names().find(name), std::string::npos);
    EXPECT_GT(profile(name).flops, 1e12);
    EXPECT_GT(profile(name).memory_bytes, 1e11);
    EXPECT_GT(profile(name).link_bytes, 1e9);
  }
  EXPECT_EQ(find_profile("H200"), nullptr);
  EXPECT_EQ(find_profile(""), nullptr);
}

TEST(CostModel, AFewRowsTakeAsLongAsTheWeightsTakeToStream) {
  // 4096 x 14336 in bf16 are 117.4 MB: 27.3 us at 4.3 TB/s.
  const double alone = micros(op_time(profile("h200"), gemm_of(1, 14336, 4096)));
  EXPECT_NEAR(alone, 3 + 27.3, 0.1);
  EXPECT_EQ(op_time(profile("h200"), gemm_of(64, 14336, 4096)),
            op_time(profile("h200"), gemm_of(1, 14336, 4096)));
}

// A host computes a few rows while their weights stream, an accelerator many.
TEST(CostModel, AHostIsAnAcceleratorOfItsCoresAndItsMemory) {
  const AcceleratorProfile& host = profile("xeon-6342");
  EXPECT_TRUE(host.is_host);
  EXPECT_FALSE(profile("a100").is_host);
  // 117.4 MB at 73 % of 204.8 GB/s.
  EXPECT_NEAR(micros(op_time(host, gemm_of(1, 14336, 4096))), 3 + 785.5, 1);
  EXPECT_GT(op_time(host, gemm_of(64, 14336, 4096)), 3 * op_time(host, gemm_of(1, 14336, 4096)));
}

TEST(CostModel, OfAnOpsTimeTheMemoryWorksAsLongAsItsBytesTake) {
  const AcceleratorProfile& host = profile("xeon-6342");
  const Nanos streamed = op_memory_time(host, gemm_of(1, 14336, 4096));
  EXPECT_NEAR(micros(op_time(host, gemm_of(1, 14336, 4096)) - streamed), 3, 0.01);
  EXPECT_EQ(op_memory_time(host, gemm_of(512, 14336, 4096)), streamed);
  EXPECT_NEAR(micros(op_memory_time(host, gemm_of(1, 14336, 4096), {.ranks = 2})),
              micros(streamed) / 2, 0.01);
  EXPECT_EQ(op_memory_time(host, gemm_of(0, 14336, 4096)), Nanos{0});
  const CopyOp copy{.bytes = 1'000'000};
  EXPECT_NEAR(micros(op_time(host, copy) - op_memory_time(host, copy)), 2, 0.01);
}

TEST(CostModel, ManyRowsTakeTimeByTheStepsOfTheLadder) {
  const AcceleratorProfile& own = profile("h200");
  // 2 x 2048 x 4096 x 4096 at 790 Tflop/s: 87 us.
  EXPECT_NEAR(micros(op_time(own, gemm_of(2048, 4096, 4096))), 3 + 87.0, 0.2);
  EXPECT_EQ(op_time(own, gemm_of(2047, 4096, 4096)), op_time(own, gemm_of(2048, 4096, 4096)));
  EXPECT_LT(op_time(own, gemm_of(2048, 4096, 4096)), op_time(own, gemm_of(2049, 4096, 4096)));
  EXPECT_EQ(ladder_rows(1), 16);
  EXPECT_EQ(ladder_rows(17), 32);
  EXPECT_EQ(ladder_rows(128), 128);
  EXPECT_EQ(ladder_rows(129), 256);
}

Nanos attention(const std::vector<kernels::AttentionSlice>& slices, int32_t window) {
  AttentionOp op;
  op.batch.layout = {ElementType::kBF16, 1, 8, 128, 128, 32};
  op.batch.heads = 32;
  op.batch.window = window;
  op.batch.slices = slices.data();
  op.batch.shape.slices = static_cast<int32_t>(slices.size());
  return op_time(profile("h200"), op);
}

kernels::AttentionSlice slice_of(int32_t rows, int32_t first_position) {
  return {.row_begin = 0, .row_count = rows, .first_position = first_position};
}

TEST(CostModel, DecodeAttentionTakesItsContextsBytes) {
  const double base = micros(attention({slice_of(1, 0)}, 0));
  // 1,000,000 tokens of 4096 bytes at 4.3 TB/s: 953 us.
  EXPECT_NEAR(micros(attention({slice_of(1, 999'999)}, 0)) - base, 952.6, 0.5);
  EXPECT_NEAR(micros(attention({slice_of(1, 999'999)}, 1)), base, 0.01);
  const double two = micros(attention({slice_of(1, 9999), slice_of(1, 9999)}, 0));
  const double one = micros(attention({slice_of(1, 9999)}, 0));
  EXPECT_NEAR(two - one, 0.05 + 9.53, 0.05);
  EXPECT_EQ(attention({}, 0), Nanos{0});
}

TEST(CostModel, PrefillAttentionIsLinearInPairs) {
  const double base = micros(attention({slice_of(1, 0)}, 0)) - 0.05;
  const double whole = micros(attention({slice_of(2048, 0)}, 0)) - base;
  // 2048 x 2049 / 2 pairs x 4 x 4096 flops at 790 Tflop/s: 43.5 us.
  EXPECT_NEAR(whole, 43.5, 0.2);
  const double halves = micros(attention({slice_of(1024, 0), slice_of(1024, 1024)}, 0)) - base;
  EXPECT_NEAR(halves, whole, 0.1);
}

TEST(CostModel, AWindowBoundsWhatEachRowOfAChunkSees) {
  // Rows at positions 50 .. 149 with a window of 100: 51, 52, .. 100 tokens, then 50 times 100.
  const double all = micros(attention({slice_of(100, 50)}, 0));
  const double windowed = micros(attention({slice_of(100, 50)}, 100));
  const double pair_micros = 4.0 * 32 * 128 / 790e6;
  EXPECT_NEAR(all - windowed, (100 * 100.5 - (50 * 75.5 + 50 * 100)) * pair_micros, 0.01);
  EXPECT_EQ(attention({slice_of(100, 0)}, 100), attention({slice_of(100, 0)}, 0));
  // All rows beyond the window: 100 x 100.
  const double base = micros(attention({slice_of(1, 0)}, 0)) - 0.05;
  EXPECT_NEAR(micros(attention({slice_of(100, 500)}, 100)) - base, 100 * 100 * pair_micros, 0.01);
}

TEST(CostModel, RanksShareProductsAndPayForTheirSums) {
  const AcceleratorProfile& own = profile("h200");
  const RankGroup four{.ranks = 4, .latency = std::chrono::microseconds(10), .bytes = 100e9};
  const double product = micros(op_time(own, gemm_of(1, 14336, 4096), four));
  EXPECT_NEAR(product, 3 + 27.3 / 4, 0.1);
  GemmOp down = gemm_of(1000, 4096, 4096);
  down.accumulate = true;
  const double plain = micros(op_time(own, gemm_of(1000, 4096, 4096), four));
  // 8.192 MB, three quarters of it twice.
  EXPECT_NEAR(micros(op_time(own, down, four)) - plain, 10 + 1.5 * 81.92, 0.1);
  EXPECT_EQ(op_time(own, down), op_time(own, gemm_of(1000, 4096, 4096)));
}

TEST(CostModel, OtherOpsTakeTheirBytesAndNothingTakesNothing) {
  const AcceleratorProfile& own = profile("h200");
  EXPECT_NEAR(micros(op_time(own, CopyOp{.bytes = 43'000'000})), 2 + 20, 0.01);
  EXPECT_NEAR(micros(op_time(own, RmsNormOp{.rows = 1000, .hidden = 4300, .y_stride = 4300})),
              2 + 6.0, 0.01);
  const std::array<Op, 16> empty = {
      CopyOp{},      KvMoveOp{},    UploadOp{},    GateUpOp{},        EmbedOp{},     RmsNormOp{},
      GemmOp{},      RopeTableOp{}, RopeWriteOp{}, AttentionPlanOp{}, AttentionOp{}, CastOp{},
      RowGatherOp{}, SampleOp{},    RopeRouteOp{}, TailGatherOp{}};
  static_assert(std::variant_size_v<Op> == std::tuple_size_v<decltype(empty)>);
  for (const Op& op : empty) {
    EXPECT_EQ(op_time(own, op), Nanos{0}) << "op " << op.index();
  }
}

TEST(CostModel, TheLinkTakesItsBytes) {
  EXPECT_EQ(link_transfer_time(25e9, 25'000'000), std::chrono::milliseconds(1));
  EXPECT_EQ(link_transfer_time(25e9, 0), Nanos{0});
}

}  // namespace
}  // namespace tandem::device
