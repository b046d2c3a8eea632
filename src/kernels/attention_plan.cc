// Division of a step's attention into tasks of about equal cost.
#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/attention_partial.h"

namespace tandem::kernels {

namespace {

// Small enough that the last task leaves no thread idle for long, large enough that taking one
// costs nothing.
constexpr int64_t kTasksPerThread = 4;

// Queries (rows x heads of a group) that share one pass over the KV; matches the kernels' tile, so
// that a unit is one pass.
constexpr int64_t kTileQueries = 64;

// Reading one token's K and V from memory takes about as long as computing it for this many
// queries (14 GB/s against 120 GF).
constexpr int64_t kReadInQueries = 8;

// Rows of one slice and one kv head that share a pass over the KV.
struct Unit {
  int64_t row_begin = 0;  // of the slice
  int64_t row_count = 0;
};

int64_t unit_cost(const AttentionArgs& args, const AttentionSlice& slice, const Unit& unit) {
  const int64_t first_row = slice.row_begin + unit.row_begin;
  const int64_t tokens = row_context_tokens(slice, first_row + unit.row_count - 1) -
                         row_tokens(args, slice, first_row).begin;
  return tokens * (kReadInQueries + unit.row_count * query_group(args));
}

class Planner {
 public:
  Planner(const AttentionArgs& args, int32_t threads, AttentionPlan& plan)
      : args_(args), plan_(plan), threads_(threads) {
    tile_rows_ = std::max<int64_t>(1, kTileQueries / query_group(args));
  }

  void run() {
    int64_t total = 0;
    for (int32_t s = 0; s < args_.slice_count; ++s) {
      const AttentionSlice& slice = args_.slices[s];
      for (int64_t row = 0; row < slice.row_count; row += tile_rows_) {
        total += unit_cost(args_, slice, tile(slice, row)) * args_.layout.kv_heads;
      }
    }
    target_ = std::max<int64_t>(1, total / (kTasksPerThread * threads_));
    for (int32_t s = 0; s < args_.slice_count; ++s) {
      for (int32_t head = 0; head < args_.layout.kv_heads; ++head) {
        add_slice(s, head);
      }
    }
    form_runs();
  }

 private:
  [[nodiscard]] Unit tile(const AttentionSlice& slice, int64_t row) const {
    return {row, std::min<int64_t>(tile_rows_, slice.row_count - row)};
  }

  // Runs of tiles up to the target cost become one task; a tile above it is divided by splits.
  void add_slice(int32_t slice_index, int32_t head) {
    const AttentionSlice& slice = args_.slices[slice_index];
    Unit run;
    int64_t run_cost = 0;
    for (int64_t row = 0; row < slice.row_count; row += tile_rows_) {
      const Unit next = tile(slice, row);
      const int64_t cost = unit_cost(args_, slice, next);
      if (run.row_count > 0 && run_cost + cost > target_) {
        add_unit(slice_index, head, run, run_cost);
        run = {row, 0};
        run_cost = 0;
      }
      run.row_count += next.row_count;
      run_cost += cost;
    }
    if (run.row_count > 0) {
      add_unit(slice_index, head, run, run_cost);
    }
  }

  void add_unit(int32_t slice_index, int32_t head, const Unit& unit, int64_t cost) {
    const AttentionSlice& slice = args_.slices[slice_index];
    const int64_t row_begin = slice.row_begin + unit.row_begin;
    const int64_t first_split = row_tokens(args_, slice, row_begin).begin / kSplitTokens;
    const int64_t splits =
        splits_of(row_context_tokens(slice, row_begin + unit.row_count - 1)) - first_split;
    AttentionTask task;
    task.slice = slice_index;
    task.kv_head = head;
    task.row_begin = static_cast<int32_t>(row_begin);
    task.row_count = static_cast<int32_t>(unit.row_count);
    task.split_begin = static_cast<int32_t>(first_split);
    task.split_count = static_cast<int32_t>(splits);
    // One thread gains nothing by dividing a context.
    const int64_t pieces = threads_ == 1 ? 1 : std::min(splits, (cost + target_ - 1) / target_);
    if (pieces <= 1) {
      task.cost = cost;
      plan_.tasks.push_back(task);
      return;
    }
    const int64_t base = plan_.partial_floats;
    const int64_t split_stride = split_floats(args_, unit.row_count);
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int64_t begin = splits * piece / pieces;
      const int64_t end = splits * (piece + 1) / pieces;
      task.split_begin = static_cast<int32_t>(first_split + begin);
      task.split_count = static_cast<int32_t>(end - begin);
      task.partial_offset = base + begin * split_stride;
      task.cost = cost * (end - begin) / splits;
      plan_.tasks.push_back(task);
    }
    plan_.merges.push_back({.slice = slice_index,
                            .kv_head = head,
                            .row_begin = task.row_begin,
                            .row_count = task.row_count,
                            .split_begin = static_cast<int32_t>(first_split),
                            .split_count = static_cast<int32_t>(splits),
                            .partial_offset = base});
    plan_.partial_floats += splits * split_stride;
  }

  // Costly tasks first, then runs of half of each thread's share of what is left.
  void form_runs() {
    const auto costs_more = [](const AttentionTask& a, const AttentionTask& b) {
      return a.cost > b.cost;
    };
    if (!std::is_sorted(plan_.tasks.begin(), plan_.tasks.end(), costs_more)) {
      std::sort(plan_.tasks.begin(), plan_.tasks.end(),
                [&](const AttentionTask& a, const AttentionTask& b) {
                  return std::tuple(-a.cost, a.slice, a.kv_head, a.row_begin, a.split_begin) <
                         std::tuple(-b.cost, b.slice, b.kv_head, b.row_begin, b.split_begin);
                });
    }
    int64_t left = 0;
    for (const AttentionTask& task : plan_.tasks) {
      left += task.cost;
    }
    int64_t run = 0;
    for (size_t i = 0; i < plan_.tasks.size(); ++i) {
      run += plan_.tasks[i].cost;
      if (run * 2 * threads_ >= left || i + 1 == plan_.tasks.size()) {
        plan_.run_ends.push_back(static_cast<int32_t>(i + 1));
        left -= run;
        run = 0;
      }
    }
  }

  const AttentionArgs& args_;
  AttentionPlan& plan_;
  int64_t threads_ = 1;
  int64_t tile_rows_ = 1;
  int64_t target_ = 1;
};

}  // namespace

void plan_attention(const AttentionArgs& args, int32_t threads, AttentionPlan& plan) {
  CHECK(threads > 0, "plan_attention for {} threads", threads);
  CHECK(args.layout.kv_heads > 0 && args.heads > 0 && args.heads % args.layout.kv_heads == 0,
        "{} heads over {} kv heads", args.heads, args.layout.kv_heads);
  CHECK(args.window >= 0, "a window of {} tokens", args.window);
  plan.tasks.clear();
  plan.run_ends.clear();
  plan.merges.clear();
  plan.partial_floats = 0;
  Planner(args, threads, plan).run();
}

}  // namespace tandem::kernels
