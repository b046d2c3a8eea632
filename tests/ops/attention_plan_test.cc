// The division of a step's attention into tasks: complete, no finer than it pays, nothing outside a
// window.
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "kernels/kernels.h"

namespace tandem::kernels {
namespace {

// Coverage of a plan: every (row, kv head, split) once.
void expect_complete(const AttentionArgs& args, const AttentionPlan& plan) {
  for (int32_t s = 0; s < args.slice_count; ++s) {
    const AttentionSlice& slice = args.slices[s];
    for (int32_t head = 0; head < args.layout.kv_heads; ++head) {
      for (int32_t row = slice.row_begin; row < slice.row_begin + slice.row_count; ++row) {
        const int32_t context = slice.first_position + (row - slice.row_begin) + 1;
        std::vector<int> seen(static_cast<size_t>((context + kSplitTokens - 1) / kSplitTokens));
        for (const AttentionTask& task : plan.tasks) {
          if (task.slice == s && task.kv_head == head && row >= task.row_begin &&
              row < task.row_begin + task.row_count) {
            for (int32_t i = 0; i < task.split_count; ++i) {
              const auto split = static_cast<size_t>(task.split_begin + i);
              if (split < seen.size()) {
                ++seen[split];
              }
            }
          }
        }
        for (const int count : seen) {
          ASSERT_EQ(count, 1) << "slice " << s << ", head " << head << ", row " << row;
        }
      }
    }
  }
}

AttentionArgs plan_args(const std::vector<AttentionSlice>& slices) {
  AttentionArgs args;
  args.layout = {ElementType::kBF16, 1, 2, 64, 64, 32};
  args.heads = 16;
  args.slices = slices.data();
  args.slice_count = static_cast<int32_t>(slices.size());
  return args;
}

TEST(AttentionPlan, CoversEveryRowHeadAndSplitOnce) {
  const std::vector<AttentionSlice> slices = {
      {0, 1, 100000, nullptr}, {1, 100, 3000, nullptr}, {101, 1, 0, nullptr}};
  for (const int32_t threads : {1, 2, 7, 64}) {
    AttentionPlan plan;
    const AttentionArgs args = plan_args(slices);
    plan_attention(args, threads, plan);
    expect_complete(args, plan);
  }
}

TEST(AttentionPlan, DividesOneLongContextOverTheThreads) {
  const std::vector<AttentionSlice> slices = {{0, 1, 131071, nullptr}};
  AttentionPlan plan;
  plan_attention(plan_args(slices), 8, plan);
  EXPECT_GE(plan.tasks.size(), 32U);
  EXPECT_LE(plan.tasks.size(), 40U);
  EXPECT_EQ(plan.merges.size(), 2U);
  EXPECT_GT(plan.partial_floats, 0);
}

TEST(AttentionPlan, DividesNoContextForOneThreadOrWhenThereAreManySequences) {
  const std::vector<AttentionSlice> one = {{0, 1, 131071, nullptr}};
  AttentionPlan plan;
  plan_attention(plan_args(one), 1, plan);
  EXPECT_EQ(plan.merges.size(), 0U);
  std::vector<AttentionSlice> many;
  for (int32_t i = 0; i < 64; ++i) {
    many.push_back({i, 1, 2000, nullptr});
  }
  plan_attention(plan_args(many), 2, plan);
  EXPECT_EQ(plan.merges.size(), 0U);
  EXPECT_EQ(plan.partial_floats, 0);
}

TEST(AttentionPlan, LooksOnlyAtTheSplitsOfTheWindow) {
  const std::vector<AttentionSlice> slices = {{0, 1, 131071, nullptr}};
  AttentionArgs args = plan_args(slices);
  args.window = 4096;
  AttentionPlan plan;
  plan_attention(args, 1, plan);
  ASSERT_EQ(plan.tasks.size(), 2U);
  EXPECT_EQ(plan.tasks[0].split_begin, (131072 - 4096) / kSplitTokens);
  EXPECT_EQ(plan.tasks[0].split_count, 4096 / kSplitTokens);
  plan_attention(args, 8, plan);
  ASSERT_FALSE(plan.merges.empty());
  EXPECT_EQ(plan.merges[0].split_begin, (131072 - 4096) / kSplitTokens);
}

TEST(AttentionPlan, RunsHoldEveryTaskOnceCostlyOnesFirstAndGetShorter) {
  std::vector<AttentionSlice> slices = {{0, 1, 50000, nullptr}, {1, 200, 1000, nullptr}};
  for (int32_t i = 0; i < 100; ++i) {
    slices.push_back({201 + i, 1, 1000 + 37 * (i % 11), nullptr});
  }
  for (const int32_t threads : {1, 2, 7}) {
    AttentionPlan plan;
    plan_attention(plan_args(slices), threads, plan);
    int64_t total = 0;
    for (size_t i = 0; i < plan.tasks.size(); ++i) {
      total += plan.tasks[i].cost;
      ASSERT_TRUE(i == 0 || plan.tasks[i].cost <= plan.tasks[i - 1].cost) << "task " << i;
    }
    int64_t left = total;
    size_t seen = 0;
    for (size_t run = 0; run < plan.run_ends.size(); ++run) {
      const std::span<const AttentionTask> tasks = run_of(plan, run);
      ASSERT_FALSE(tasks.empty());
      int64_t cost = 0;
      for (const AttentionTask& task : tasks) {
        ASSERT_EQ(&task, &plan.tasks[seen++]);
        cost += task.cost;
      }
      // Half of a thread's share of what is left, and less than one task more.
      EXPECT_LT((cost - tasks.back().cost) * 2 * threads, left) << "run " << run;
      left -= cost;
    }
    EXPECT_EQ(seen, plan.tasks.size());
    EXPECT_EQ(left, 0);
  }
}

TEST(AttentionPlan, IsEmptyWithoutSlices) {
  AttentionPlan plan;
  plan_attention(plan_args({}), 4, plan);
  EXPECT_TRUE(plan.tasks.empty());
}

}  // namespace
}  // namespace tandem::kernels
