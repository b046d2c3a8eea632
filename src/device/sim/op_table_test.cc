#include "device/sim/op_table.h"

#include <gtest/gtest.h>

namespace tandem::device {
namespace {

GemmOp table_product(int64_t rows, int64_t n) {
  GemmOp op;
  op.rows = rows;
  op.w.n = n;
  op.w.k = 64;
  return op;
}

OpTable measured() {
  OpTable table;
  table.lines.push_back(
      {.key = key_of(table_product(1, 128)), .points = {{2, 1000}, {4, 1400}, {8, 4000}}});
  table.attention = {500, 10, 20, 2, 3};
  return table;
}

TEST(OpTable, GoesThroughThePointsAndBeyond) {
  const OpTable table = measured();
  EXPECT_EQ(table.time(table_product(2, 128)).count(), 1000);
  EXPECT_EQ(table.time(table_product(3, 128)).count(), 1200);
  EXPECT_EQ(table.time(table_product(8, 128)).count(), 4000);
  EXPECT_EQ(table.time(table_product(16, 128)).count(), 8000);  // in proportion to the last point
  EXPECT_EQ(table.time(table_product(1, 128)).count(), 1000);   // as the first point
}

TEST(OpTable, KnowsOpsByTheirWeights) {
  const OpTable table = measured();
  EXPECT_EQ(table.time(table_product(2, 256)).count(), 0);
  EXPECT_EQ(table.time(CopyOp{.bytes = 100}).count(), 0);
}

TEST(OpTable, AttentionIsASumOfWhatItSees) {
  const std::array slices = {
      kernels::AttentionSlice{.row_count = 1, .first_position = 9},
      kernels::AttentionSlice{.row_count = 3, .first_position = 0},
  };
  AttentionOp op;
  op.batch.host_slices = slices.data();
  op.batch.shape = {.rows = 4, .slices = 2};
  // Three rows that see 1, 2 and 3 tokens; one that sees 10.
  EXPECT_EQ(measured().time(op).count(), 500 + 2 * 10 + 4 * 20 + 6 * 2 + 10 * 3);
}

}  // namespace
}  // namespace tandem::device
