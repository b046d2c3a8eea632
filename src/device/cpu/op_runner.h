// Runs one op at a time with the kernels of a run's choice: decides how to divide it (panels, rows,
// attention tasks, pieces of a copy), and whether it is worth waking others for at all. Results do
// not depend on the division. One thread.
#pragma once

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
  void before_event() override { forget_plan(); }
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

  void run_one(const CopyOp& copy);
  void run_one(const kernels::PackArgs& args);
  void run_one(const kernels::EmbedArgs& args);
  void run_one(const kernels::RmsNormArgs& args);
  void run_one(const kernels::GemmArgs& args);
  void run_one(const kernels::RopeTableArgs& args);
  void run_one(const kernels::RopeWriteArgs& args);
  void run_one(const AttentionOp& op);
  void run_one(const kernels::RowGatherArgs& args);
  void run_one(const kernels::SampleArgs& args);
  void run_one(const kernels::RopeRouteArgs& args);
  void run_one(const kernels::TailGatherArgs& args);

  // The arguments that a plan of attention was made from may change from here on.
  void forget_plan() { planned_.slices = nullptr; }
  [[nodiscard]] bool plan_fits(const kernels::AttentionArgs& args) const;

  const kernels::KernelSet set_;
  const kernels::Kernels& kernels_;  // of all but products
  WorkerPool& pool_;
  const int32_t desk_;
  Scratch scratch_;
  kernels::AttentionPlan plan_;
  kernels::AttentionArgs planned_;  // what plan_ was made from; slices null: nothing
  double attention_nanos_ = 0;
};

}  // namespace tandem::device
