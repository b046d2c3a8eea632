// For tests of the host workers: a KV pool with random contexts, rows to attend for, the plain
// path's answer to them, and a hook that a test steers.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "kernels/routed_row.h"
#include "piggyback/workers/aligned_buffer.h"
#include "piggyback/workers/attention_workers.h"

namespace tandem::piggyback {

struct HostShape {
  kernels::Isa isa = kernels::Isa::kRef;
  ElementType type = ElementType::kBF16;
  int32_t kv_heads = 2;
  int32_t group = 2;
  int32_t head_dim = 32;
  int32_t block_tokens = 32;
  int32_t layers = 2;
  std::vector<int32_t> windows = {};
  ElementType out_type = ElementType::kBF16;
};

// Rows of random sequences with a context of positions[i] tokens before the row's own.
class HostRows {
 public:
  HostRows(const HostShape& shape, const std::vector<int32_t>& positions, uint64_t seed);

  [[nodiscard]] AttentionWorkersOptions options();
  [[nodiscard]] std::vector<HopTask> tasks(int32_t layer);
  // Puts every row's K and V where it belongs by other code, attends on one thread in one batch;
  // the rows one after another. Leaves the pool with them.
  [[nodiscard]] std::vector<std::byte> plain(int32_t layer);
  [[nodiscard]] std::vector<std::byte> results() const;
  // The pool without the rows' own tokens again.
  void reset();
  [[nodiscard]] const std::vector<std::byte>& pool_bytes();
  [[nodiscard]] int64_t result_bytes() const;

 private:
  void store(int32_t layer, size_t row);

  HostShape shape_;
  kernels::KvLayout layout_;
  kernels::RoutedRow routed_row_;
  std::vector<int32_t> positions_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<std::byte> original_;
  std::vector<std::byte> pool_copy_;
  AlignedBuffer pool_;
  AlignedBuffer routed_;
  AlignedBuffer out_;
  AlignedBuffer partials_;
  int64_t out_pitch_ = 0;
  const SteadyClock clock_;
};

std::unique_ptr<AttentionWorkers> start(const AttentionWorkersOptions& options);

// Runs `tasks` and returns the answers, sorted by slot; waits for all of them.
std::vector<HopAnswer> run_all(AttentionHost& attention, const std::vector<HopTask>& tasks);

// Waits for answers with the listener.
class Answers {
 public:
  explicit Answers(AttentionHost& attention);
  // At least `count` in all since the start.
  const std::vector<HopAnswer>& wait(size_t count);
  // Those that are there now.
  const std::vector<HopAnswer>& look();

 private:
  AttentionHost& attention_;
  std::mutex mutex_;
  std::condition_variable called_;
  int64_t calls_ = 0;
  std::vector<HopAnswer> all_;
};

// Holds workers at a point until it is opened.
class Gate {
 public:
  void pass();
  void open();
  void wait_for_arrivals(int32_t count);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int32_t arrived_ = 0;
};

class SteeredHook final : public WorkerHook {
 public:
  using Act = std::function<WorkerAct(WorkerPoint, const HopTask&)>;
  explicit SteeredHook(Act act) : act_(std::move(act)) {}
  WorkerAct at(WorkerPoint point, const HopTask& task, int32_t /*worker*/) override {
    return act_(point, task);
  }

 private:
  const Act act_;
};

}  // namespace tandem::piggyback
