#include "device/ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "device/emulated/emulated_accelerator.h"
#include "device/op_queries.h"

namespace tandem::device {
namespace {

template <size_t... kIndex>
std::vector<Op> every_op(std::index_sequence<kIndex...>) {
  return {Op(std::in_place_index<kIndex>)...};
}
std::vector<Op> every_op() { return every_op(std::make_index_sequence<std::variant_size_v<Op>>()); }

TEST(Ops, EachHasANameOfItsOwnAndNamedOperands) {
  std::set<std::string> names;
  for (const Op& op : every_op()) {
    const OpLabel label = label_of(op);
    EXPECT_TRUE(names.insert(label.name).second) << label.name;
    EXPECT_STRNE(label.detail, "");
    EXPECT_EQ(label.value, 0) << label.name;
    for_each_operand(op, [&](const Operand& operand) { EXPECT_STRNE(operand.name, ""); });
  }
}

TEST(Ops, NothingToDoMovesNothing) {
  for (const Op& op : every_op()) {
    EXPECT_EQ(moved_bytes(op), 0) << label_of(op).name;
    for_each_operand(op, [&](const Operand& operand) {
      EXPECT_EQ(operand.bytes(), 0) << label_of(op).name << " " << operand.name;
    });
  }
}

TEST(Ops, AnOperandReachesToTheEndOfItsLastRow) {
  const CastOp op{
      .x_stride = 100, .rows = 3, .columns = 10, .y_type = ElementType::kBF16, .y_stride = 50};
  std::vector<int64_t> bytes;
  for_each_operand(op, [&](const Operand& operand) { bytes.push_back(operand.bytes()); });
  EXPECT_EQ(bytes, (std::vector<int64_t>{(2 * 100 + 10) * 4, (2 * 50 + 10) * 2}));
  EXPECT_EQ(moved_bytes(op), 3 * 10 * (4 + 2));
}

TEST(Ops, WhatIsReadAndWrittenCountsTwice) {
  GemmOp op{.x_stride = 32, .rows = 2, .w = {.n = 32, .k = 32}, .y_stride = 32};
  const int64_t written = moved_bytes(op);
  op.accumulate = true;
  EXPECT_EQ(moved_bytes(op) - written, 2 * 32 * 4);
}

// Each back end runs every op.
class OnEachBackEnd : public testing::TestWithParam<const char*> {
 protected:
  OnEachBackEnd() {
    if (std::string(GetParam()) == "cpu") {
      device_ = std::move(make_cpu_device({.threads = 2})).value();
    } else {
      device_ = std::move(make_emulated_accelerator({.device_memory_bytes = int64_t{8} << 20,
                                                     .host_memory_bytes = int64_t{8} << 20}))
                    .value();
    }
    memory_ = std::move(device_->allocate(MemoryKind::kDevice, int64_t{1} << 20)).value();
  }
  void run(const Op& op) {
    const StreamId stream = device_->create_stream();
    device_->launch(stream, op);
    device_->synchronize(device_->record(stream));
  }
  template <class T>
  T* at(int64_t offset) {
    return reinterpret_cast<T*>(memory_->data() + offset);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Memory> memory_;
};

TEST_P(OnEachBackEnd, ACastRoundsToNearestEvenAndBackAgainExactly) {
  constexpr int64_t kRows = 70;
  constexpr int64_t kColumns = 100;
  constexpr int64_t kStride = 112;
  auto* x = at<float>(0);
  auto* narrow = at<BFloat16>(int64_t{256} << 10);
  auto* wide = at<float>(int64_t{512} << 10);
  for (int64_t i = 0; i < kRows * kStride; ++i) {
    x[i] = std::ldexp(1.0F + static_cast<float>(i % 517) / 512.0F, static_cast<int>(i % 40) - 20);
  }
  x[3] = NAN;
  x[4] = -INFINITY;
  run(CastOp{.x = x,
             .x_stride = kStride,
             .rows = kRows,
             .columns = kColumns,
             .y = narrow,
             .y_stride = kStride});
  run(CastOp{.x = narrow,
             .x_type = ElementType::kBF16,
             .x_stride = kStride,
             .rows = kRows,
             .columns = kColumns,
             .y = wide,
             .y_type = ElementType::kF32,
             .y_stride = kColumns});
  EXPECT_TRUE(std::isnan(wide[3]));
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t column = 0; column < kStride; ++column) {
      const int64_t i = row * kStride + column;
      if (column >= kColumns) {
        ASSERT_EQ(narrow[i], 0) << "row " << row << " beyond its columns";
      } else if (i != 3) {
        ASSERT_EQ(narrow[i], f32_to_bf16(x[i])) << i;
        ASSERT_EQ(wide[row * kColumns + column], bf16_to_f32(narrow[i])) << i;
      }
    }
  }
}

TEST_P(OnEachBackEnd, AttentionByThePlanOfAnotherStepStops) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto* slices = at<kernels::AttentionSlice>(0);
  const AttentionOp op{.batch = {.slices = slices,
                                 .host_slices = slices,
                                 .shape = {.rows = 1, .slices = 1, .max_context = 1, .splits = 1},
                                 .layout = {ElementType::kBF16, 1, 1, 32, 32, 32},
                                 .heads = 1},
                       .q = at<float>(4096),
                       .kv = at<std::byte>(int64_t{256} << 10),
                       .out = at<void*>(8192),
                       .out_stride = 32};
  EXPECT_DEATH(run(op), "attention of 1 slices, window 0, by the plan of 0");
}

INSTANTIATE_TEST_SUITE_P(Ops, OnEachBackEnd, testing::Values("cpu", "emulated"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace tandem::device
