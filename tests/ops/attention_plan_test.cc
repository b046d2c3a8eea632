// The division of a step's attention into tasks: complete, no finer than it pays, nothing outside a
// window.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <queue>
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
  args.partial_floats = int64_t{1} << 40;  // no bound
  return args;
}

// The longest context of the slices.
int64_t longest(const std::vector<AttentionSlice>& slices) {
  int64_t tokens = 0;
  for (const AttentionSlice& slice : slices) {
    tokens = std::max<int64_t>(tokens, slice.first_position + slice.row_count);
  }
  return tokens;
}

// When all threads have ended, each taking the next run of tasks when it is free.
double finish(const AttentionPlan& plan, int32_t threads) {
  std::priority_queue<double, std::vector<double>, std::greater<>> free;
  for (int32_t i = 0; i < threads; ++i) {
    free.push(0);
  }
  double last = 0;
  for (size_t run = 0; run < plan.run_ends.size(); ++run) {
    double end = free.top();
    free.pop();
    for (const AttentionTask& task : run_of(plan, run)) {
      end += static_cast<double>(task.cost);
    }
    free.push(end);
    last = std::max(last, end);
  }
  return last;
}

int64_t cost_of(const AttentionPlan& plan) {
  int64_t sum = 0;
  for (const AttentionTask& task : plan.tasks) {
    sum += task.cost;
  }
  return sum;
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

struct PlanShape {
  int32_t heads;
  int32_t kv_heads;
  int32_t dim;
};
constexpr PlanShape kShapes[] = {{32, 8, 128},  {56, 8, 128}, {16, 8, 256},
                                 {32, 32, 128}, {14, 2, 64},  {8, 1, 256}};

AttentionArgs args_for(const PlanShape& shape, const std::vector<AttentionSlice>& slices,
                       int64_t context, int32_t threads) {
  AttentionArgs args = plan_args(slices);
  args.layout = {ElementType::kBF16, 1, shape.kv_heads, shape.dim, shape.dim, 32};
  args.heads = shape.heads;
  args.partial_floats = partial_room(args.layout, shape.heads, context, threads);
  return args;
}

// Chunks of prompts of all sizes, decodes, and both, of contexts up to 128k tokens.
std::vector<std::vector<AttentionSlice>> steps_of(int32_t context) {
  std::vector<std::vector<AttentionSlice>> steps;
  for (int32_t rows = 1; rows <= 2048; rows += rows < 64 ? 5 : 191) {
    steps.push_back({{0, rows, context - rows, nullptr}});
  }
  for (const int32_t sequences : {2, 7, 31, 100}) {
    std::vector<AttentionSlice> step;
    for (int32_t i = 0; i < sequences; ++i) {
      step.push_back({i, 1, context - 1 - i, nullptr});
    }
    steps.push_back(step);
    step.push_back({sequences, 96, context - 96, nullptr});
    steps.push_back(step);
  }
  return steps;
}

TEST(AttentionPlan, PartialsNeverOutgrowTheirRoomAndTheRoomIsSmall) {
  AttentionPlan plan;
  for (const PlanShape& shape : kShapes) {
    for (const int32_t threads : {1, 2, 16, 64, 128}) {
      for (const int32_t context : {2048, 8192, 131072}) {
        int64_t most = 0;
        for (const std::vector<AttentionSlice>& slices : steps_of(context)) {
          const AttentionArgs args = args_for(shape, slices, context, threads);
          plan_attention(args, threads, plan);
          ASSERT_LE(plan.partial_floats, args.partial_floats)
              << threads << " threads, " << slices.front().row_count << " rows";
          for (const AttentionTask& task : plan.tasks) {
            ASSERT_LT(task.partial_offset, std::max<int64_t>(args.partial_floats, 1));
          }
          most = std::max(most, plan.partial_floats);
        }
        const int64_t room =
            partial_room({ElementType::kBF16, 1, shape.kv_heads, shape.dim, shape.dim, 32},
                         shape.heads, context, threads);
        // Records take 1.13 to 2 times the bytes of a bf16 value each, and 256 tokens share one.
        EXPECT_LE(room * 4, int64_t{threads} * 16 * (context / 256) * (shape.dim + 16) * 4);
        EXPECT_TRUE(threads > 1 || most == 0);
        EXPECT_TRUE(threads < 64 || most > 0);
      }
    }
  }
}

TEST(AttentionPlan, CoversEverythingOnceWhereTheRoomIsShort) {
  const std::vector<AttentionSlice> slices = {{0, 37, 9000, nullptr},
                                              {37, 1, 30000, nullptr},
                                              {38, 1, 500, nullptr},
                                              {39, 100, 700, nullptr}};
  AttentionPlan plan;
  for (const int32_t threads : {2, 7, 64}) {
    for (const int64_t room : {0, 1, 50000, 500000, 5000000}) {
      AttentionArgs args = plan_args(slices);
      args.partial_floats = room;
      plan_attention(args, threads, plan);
      expect_complete(args, plan);
      EXPECT_LE(plan.partial_floats, room);
      EXPECT_EQ(plan.merges.empty(), plan.partial_floats == 0);
    }
  }
}

// By the planner's own measure of cost, with the planned room.
TEST(AttentionPlan, TheRoomIsEnoughForThreadsToEndTogether) {
  AttentionPlan plan;
  AttentionPlan whole;
  for (const PlanShape& shape : kShapes) {
    for (const int32_t threads : {2, 4, 16, 64, 128}) {
      for (const int32_t context : {8192, 131072}) {
        for (const std::vector<AttentionSlice>& slices : steps_of(context)) {
          const AttentionArgs args = args_for(shape, slices, longest(slices), threads);
          plan_attention(args, 1, whole);
          plan_attention(args, threads, plan);
          const double least = static_cast<double>(cost_of(whole)) / threads;
          double finest = 0;  // a split is not divided
          for (const AttentionTask& task : plan.tasks) {
            finest = std::max(finest, static_cast<double>(task.cost / task.split_count));
          }
          EXPECT_LE(finish(plan, threads), 1.5 * least + 2 * finest)
              << shape.heads << "/" << shape.kv_heads << " heads, " << threads << " threads, "
              << slices.size() << " slices, " << slices.back().row_count << " rows of " << context;
        }
      }
    }
  }
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
