// The ways of tiles of queries through their tasks, and the fetching of K and V ahead of them.
// Reads no K or V and computes nothing. One thread.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "hwy/highway.h"
#include "kernels/attention_partial.h"

namespace tandem::kernels::amx {

inline constexpr int64_t kTileQueries = 64;  // at most in a trip
inline constexpr int64_t kCacheLine = 64;

// A way of a tile of queries through the splits of its task.
struct Trip {
  int64_t task = 0;   // of the tasks given
  int64_t first = 0;  // query of the task, counted row by row
  int64_t queries = 0;
  int64_t begin_split = 0;
  int64_t end_split = 0;
  TokenRange tokens = {};  // that some query attends to
};

inline int64_t task_queries(const AttentionArgs& args, const AttentionTask& task) {
  return task.row_count * query_group(args);
}

inline Trip trip_of(const AttentionArgs& args, std::span<const AttentionTask> tasks, int64_t index,
                    int64_t first) {
  const AttentionTask& task = tasks[static_cast<size_t>(index)];
  const AttentionSlice& slice = args.slices[task.slice];
  const int64_t group = query_group(args);
  const int64_t queries = std::min(kTileQueries, task_queries(args, task) - first);
  const TokenRange top = row_tokens(args, slice, task.row_begin + first / group);
  const TokenRange bottom = row_tokens(args, slice, task.row_begin + (first + queries - 1) / group);
  Trip trip{.task = index, .first = first, .queries = queries};
  trip.begin_split = std::max<int64_t>(task.split_begin, top.begin / kSplitTokens);
  trip.end_split = std::min<int64_t>(task.split_begin + task.split_count, splits_of(bottom.end));
  trip.tokens = {std::max(trip.begin_split * kSplitTokens, top.begin),
                 std::min(trip.end_split * kSplitTokens, bottom.end)};
  return trip;
}

// The next one; `task` is the number of tasks when there is none.
inline Trip trip_after(const AttentionArgs& args, std::span<const AttentionTask> tasks,
                       const Trip& trip) {
  const int64_t first = trip.first + trip.queries;
  if (first < task_queries(args, tasks[static_cast<size_t>(trip.task)])) {
    return trip_of(args, tasks, trip.task, first);
  }
  if (trip.task + 1 < std::ssize(tasks)) {
    return trip_of(args, tasks, trip.task + 1, 0);
  }
  return {.task = std::ssize(tasks)};
}

// Fetches the K and V of trips into the L2 cache in the order of their use, ahead of it: while one
// trip ends, the first lines of the next are on their way.
class Ahead {
 public:
  Ahead(const AttentionArgs& args, std::span<const AttentionTask> tasks)
      : args_(args),
        tasks_(tasks),
        layout_(args.layout),
        run_lines_(args.layout.head_bytes() / kCacheLine) {}

  // The next trip is used from here on. Returns how many lines were asked for before its first one.
  int64_t begin_trip(const Trip& trip) {
    if (used_trips_ == fetched_trips_) {
      enter(trip);
    }
    ++used_trips_;
    return trip_start_;
  }
  [[nodiscard]] int64_t fetched() const { return fetched_; }
  // How far to be ahead of the use: 16 KB, and a run where that is more (its lines are not used in
  // order).
  [[nodiscard]] int64_t distance() const { return std::max<int64_t>(256, run_lines_); }

  // Goes on until `lines` lines in all have been asked for, at most to the end of the trip after
  // the used one.
  HWY_INLINE void fetch_to(int64_t lines) {
    while (fetched_ < lines) {
      if (left_ == 0 && !next_run()) {
        return;
      }
      const int64_t count = std::min(left_, lines - fetched_);
      for (int64_t i = 0; i < count; ++i, at_ += kCacheLine) {
        _mm_prefetch(at_, _MM_HINT_T1);
      }
      fetched_ += count;
      left_ -= count;
    }
  }

 private:
  void enter(const Trip& trip) {
    trip_ = trip;
    ++fetched_trips_;
    const AttentionTask& task = tasks_[static_cast<size_t>(trip.task)];
    block_table_ = args_.slices[task.slice].block_table;
    kv_head_ = task.kv_head;
    end_block_ = (trip.tokens.end + layout_.block_tokens - 1) / layout_.block_tokens;
    first_ = trip.tokens.begin / layout_.block_tokens;
    block_ = first_;
    values_ = false;
    left_ = 0;
    trip_start_ = fetched_;
  }

  bool enter_next() {
    if (fetched_trips_ > used_trips_) {
      return false;
    }
    const Trip next = trip_after(args_, tasks_, trip_);
    if (next.task == std::ssize(tasks_)) {
      return false;
    }
    enter(next);
    return true;
  }

  HWY_NOINLINE bool next_run() {
    const int64_t together = kSplitTokens / layout_.block_tokens;
    if (block_ >= std::min(end_block_, (first_ / together + 1) * together)) {
      if (values_) {
        first_ = block_;
      }
      values_ = !values_;
      block_ = first_;
      if (block_ >= end_block_ && !enter_next()) {
        return false;
      }
    }
    const int64_t id = block_table_[block_++];
    const int64_t offset = values_ ? layout_.value_offset(id, args_.layer, kv_head_)
                                   : layout_.key_offset(id, args_.layer, kv_head_);
    at_ = reinterpret_cast<const char*>(args_.kv) + offset;
    left_ = run_lines_;
    return true;
  }

  const AttentionArgs& args_;
  const std::span<const AttentionTask> tasks_;
  const KvLayout& layout_;
  const int64_t run_lines_;
  Trip trip_;  // that is being fetched
  int64_t used_trips_ = 0;
  int64_t fetched_trips_ = 0;  // begun; used_trips_ or one more
  int64_t trip_start_ = 0;     // lines before trip_
  const int32_t* block_table_ = nullptr;
  int64_t kv_head_ = 0;
  const char* at_ = nullptr;
  int64_t left_ = 0;     // lines of the current run
  int64_t fetched_ = 0;  // lines in all
  int64_t first_ = 0;    // block of the split
  int64_t block_ = 0;    // after the current run's
  int64_t end_block_ = 0;
  bool values_ = false;
};

}  // namespace tandem::kernels::amx
