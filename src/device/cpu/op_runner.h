// Runs one op at a time with the kernels of a run's choice: decides how to divide it (panels, rows,
// attention tasks, pieces of a copy), and whether it is worth waking others for at all. Results do
// not depend on the division. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "device/cpu/pages.h"
#include "device/cpu/stream.h"
#include "device/cpu/worker_pool.h"
#include "device/device.h"
#include "kernels/choice.h"
#include "kernels/kernels.h"

namespace tandem::device {

class OpRunner final : public StreamWork {
 public:
  OpRunner(kernels::KernelSet kernels, WorkerPool& pool)
      : set_(std::move(kernels)), kernels_(set_.all()), pool_(pool), desk_(pool.open_desk()) {}

  void run(const Op& op) override;
  void before_event() override {}
  void after_pause() override {}

 private:
  // A guess of what all units cost one thread; units of equal cost unless said otherwise.
  struct Work {
    int64_t units = 0;
    double nanos = 0;
    int64_t scratch_bytes = 0;
    int64_t chunks_per_thread = kChunksPerThread;
    ChunkOrder order = ChunkOrder::kAsTheyCome;
  };
  // More chunks than threads, so that a thread that is held up leaves its share to the others.
  static constexpr int64_t kChunksPerThread = 6;
  // Each chunk of a product brings all rows of x to its core's cache: many rows, few chunks.
  static constexpr int64_t kManyRows = 128;
  static constexpr int64_t kManyRowsChunksPerThread = 2;
  static constexpr int64_t kUnequalChunksPerThread = 32;
  // Calls part(begin, end, scratch) on runs of units that together are 0 .. units.
  template <class Part>
  void divide(const Work& work, const Part& part);
  template <class Part>
  void divide_rows(int64_t rows, double nanos_per_row, const Part& part) {
    divide({.units = rows, .nanos = nanos_per_row * static_cast<double>(rows)},
           [&](int64_t begin, int64_t end, void*) { part(begin, end); });
  }

  // Specialised for each op in op_runner.cc.
  template <class AnyOp>
  void run_one(const AnyOp& op);

  void multiply(kernels::GemmArgs args);

  // A division of attention, what it was made for, and a guess of what it costs one thread.
  struct PlannedAttention {
    AttentionBatch batch;
    kernels::AttentionPlan plan;
    double nanos = 0;
  };

  const kernels::KernelSet set_;
  const kernels::Kernels& kernels_;  // of all but products
  WorkerPool& pool_;
  const int32_t desk_;
  Scratch scratch_;
  Scratch prepared_;  // rows that Kernels::prepare wrote, for all threads of a product
  std::array<PlannedAttention, kAttentionPlans> attention_;
};

}  // namespace tandem::device
