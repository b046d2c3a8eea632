#include "sim/op_measures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "model/test_support.h"

namespace tandem::sim {
namespace {

using ::testing::HasSubstr;

device::GemmOp product(int64_t rows) {
  device::GemmOp op;
  op.rows = rows;
  op.w.n = 128;
  op.w.k = 64;
  return op;
}

// Ten times of 1 us and one that was interrupted, for each of two amounts.
void measure(OpMeasures& measures) {
  for (const int64_t rows : {16, 64}) {
    for (int i = 0; i < 10; ++i) {
      measures.add(product(rows), Nanos{1000 * rows});
    }
    measures.add(product(rows), Nanos{50'000'000});
  }
}

TEST(OpMeasures, MeansLeaveOutWhatWasInterrupted) {
  OpMeasures measures;
  measure(measures);
  const device::OpTable table = measures.table();
  EXPECT_EQ(table.time(product(16)).count(), 16'000);
  EXPECT_EQ(table.time(product(40)).count(), 40'000);
  measures.clear();
  EXPECT_TRUE(measures.table().lines.empty());
}

TEST(OpMeasures, AttentionIsFittedToItsParts) {
  OpMeasures measures;
  for (int32_t rows = 1; rows <= 8; ++rows) {
    for (const int32_t context : {10, 500, 3000}) {
      const std::vector<kernels::AttentionSlice> slices(
          static_cast<size_t>(rows),
          kernels::AttentionSlice{.row_count = 1, .first_position = context});
      device::AttentionOp op;
      op.batch.host_slices = slices.data();
      op.batch.shape = {.rows = rows, .slices = rows};
      measures.add(op, Nanos{2000 + rows * 300 + rows * context * 5});
    }
  }
  const kernels::AttentionSlice slice{.row_count = 1, .first_position = 999};
  device::AttentionOp op;
  op.batch.host_slices = &slice;
  op.batch.shape = {.rows = 1, .slices = 1};
  EXPECT_NEAR(static_cast<double>(measures.table().time(op).count()), 7300, 150);
}

class OpMeasuresFile : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return (folder_.path() / "ops.json").string(); }
  void write(const std::string& text) const { std::ofstream(path()) << text; }
  [[nodiscard]] std::string read() const {
    std::ifstream file(path());
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // The file with the first `from` replaced.
  void change(const std::string& from, const std::string& to) const {
    std::string text = read();
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write(text.replace(at, from.size(), to));
  }
  void write_good() const {
    OpMeasures measures;
    measure(measures);
    const Status written =
        write_measured_ops({.machine = "two cores",
                            .memory_bytes = 1 << 30,
                            .shape = {2, 64, 128, 4, 2, 300},
                            .table = std::make_shared<device::OpTable>(measures.table())},
                           path());
    ASSERT_TRUE(written.ok());
  }
  model::TempFolder folder_;
};

TEST_F(OpMeasuresFile, IsReadAsItWasWritten) {
  write_good();
  const Result<MeasuredOps> measured = read_measured_ops(path());
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  EXPECT_EQ(measured->machine, "two cores");
  EXPECT_EQ(measured->memory_bytes, 1 << 30);
  EXPECT_EQ(measured->shape[5], 300);
  EXPECT_EQ(measured->table->time(product(40)).count(), 40'000);
}

TEST_F(OpMeasuresFile, WhatIsWrongIsNamed) {
  struct Case {
    const char* from;
    const char* to;
    const char* says;
  };
  for (const Case& one : {Case{"\"gemm\"", "\"gemmm\"", "unknown name 'gemmm'"},
                          Case{"\"version\":1", "\"version\":7", "version 7"},
                          Case{"[[16,", "[[99,", "rising amounts"},
                          Case{"[[16,16000.0]", "[[16,-1]", "a time that is not"},
                          Case{"\"layers\":2", "\"layers\":-2", "layers is missing"},
                          Case{"\"layers\":2", "\"layers\":true", "layers is missing"},
                          Case{"\"attention\":[", "\"attention\":[1,", "five numbers"},
                          Case{"{\"version\"", "[\"version\"", "not JSON"}}) {
    write_good();
    change(one.from, one.to);
    const Result<MeasuredOps> measured = read_measured_ops(path());
    ASSERT_FALSE(measured.ok()) << one.to;
    EXPECT_THAT(measured.error().message, HasSubstr(one.says));
    EXPECT_THAT(measured.error().message, HasSubstr("ops.json"));
  }
  EXPECT_FALSE(read_measured_ops((folder_.path() / "none").string()).ok());
}

}  // namespace
}  // namespace tandem::sim
