// Division of a step's attention into tasks of about equal cost.
#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/attention_partial.h"
#include "kernels/gemm.h"

namespace tandem::kernels {

namespace {

// The finest tasks: small enough that the last one leaves no thread idle for long, large enough
// that taking one costs nothing.
constexpr int64_t kTasksPerThread = 4;

// Queries whose contexts can be divided at once, and one row of a kv head at least. With so many,
// steps of all sizes end as early in the mean as with any number; half as many cost small chunks of
// long prompts a third on some numbers of threads.
constexpr int64_t kDividedQueriesPerThread = 16;

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
    left_ = total;
    target_ = std::max<int64_t>(1, total / (kTasksPerThread * threads_));
    row_target_ = std::max<int64_t>(1, total / threads_);  // the K and V are read anew by each part
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

  // Runs of tiles up to the target cost become one task; a tile above it may be divided.
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

  // What costs more than a thread's share of all that is left is divided: so threads find large
  // tasks while there are many, and end together. One thread gains nothing by that.
  void add_unit(int32_t slice_index, int32_t head, const Unit& unit, int64_t cost) {
    const int64_t share = left_ / threads_;
    left_ -= cost;
    AttentionTask task = whole_task(slice_index, head, unit);
    if (threads_ == 1 || cost <= std::max(target_, share)) {
      task.cost = cost;
      plan_.tasks.push_back(task);
      return;
    }
    const int64_t parts = std::min<int64_t>(task.split_count, divide_up(cost, target_));
    const int64_t floats = task.split_count * split_floats(args_, unit.row_count);
    if (parts > 1 && floats <= args_.partial_floats - plan_.partial_floats) {
      divide_context(task, cost, parts);
    } else {
      divide_rows(slice_index, head, unit, divide_up(cost, std::max(row_target_, share)));
    }
  }

  [[nodiscard]] AttentionTask whole_task(int32_t slice_index, int32_t head,
                                         const Unit& unit) const {
    const AttentionSlice& slice = args_.slices[slice_index];
    const int64_t row_begin = slice.row_begin + unit.row_begin;
    const int64_t first_split = row_tokens(args_, slice, row_begin).begin / kSplitTokens;
    const int64_t end_split = splits_of(row_context_tokens(slice, row_begin + unit.row_count - 1));
    AttentionTask task;
    task.slice = slice_index;
    task.kv_head = head;
    task.row_begin = static_cast<int32_t>(row_begin);
    task.row_count = static_cast<int32_t>(unit.row_count);
    task.split_begin = static_cast<int32_t>(first_split);
    task.split_count = static_cast<int32_t>(end_split - first_split);
    return task;
  }

  // Each part leaves records of its splits, which are merged when all are there.
  void divide_context(const AttentionTask& whole, int64_t cost, int64_t parts) {
    const int64_t base = plan_.partial_floats;
    const int64_t splits = whole.split_count;
    const int64_t split_stride = split_floats(args_, whole.row_count);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = splits * part / parts;
      const int64_t end = splits * (part + 1) / parts;
      AttentionTask task = whole;
      task.split_begin = static_cast<int32_t>(whole.split_begin + begin);
      task.split_count = static_cast<int32_t>(end - begin);
      task.partial_offset = base + begin * split_stride;
      task.cost = cost * (end - begin) / splits;
      plan_.tasks.push_back(task);
    }
    plan_.merges.push_back({.slice = whole.slice,
                            .kv_head = whole.kv_head,
                            .row_begin = whole.row_begin,
                            .row_count = whole.row_count,
                            .split_begin = whole.split_begin,
                            .split_count = whole.split_count,
                            .partial_offset = base});
    plan_.partial_floats += splits * split_stride;
  }

  void divide_rows(int32_t slice_index, int32_t head, const Unit& unit, int64_t wanted) {
    const int64_t parts = std::clamp<int64_t>(wanted, 1, unit.row_count);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = unit.row_count * part / parts;
      const int64_t end = unit.row_count * (part + 1) / parts;
      const Unit rows{unit.row_begin + begin, end - begin};
      AttentionTask task = whole_task(slice_index, head, rows);
      task.cost = unit_cost(args_, args_.slices[slice_index], rows);
      plan_.tasks.push_back(task);
    }
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
  int64_t left_ = 0;  // cost of what has no task yet
  int64_t target_ = 1;
  int64_t row_target_ = 1;
};

}  // namespace

int64_t partial_room(const KvLayout& layout, int32_t heads, int64_t context_tokens,
                     int32_t threads) {
  const int64_t queries = std::max<int64_t>(kDividedQueriesPerThread, heads / layout.kv_heads);
  return threads == 1
             ? 0
             : threads * queries * splits_of(context_tokens) * partial_record_floats(layout);
}

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
