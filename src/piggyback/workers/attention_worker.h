// One worker thread: how it computes a task. Internal to workers/.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "piggyback/workers/aligned_buffer.h"
#include "piggyback/workers/attention_queue.h"
#include "piggyback/workers/attention_workers.h"

namespace tandem::piggyback {

// Written by one worker, read by any thread.
struct alignas(64) WorkerCounts {
  std::atomic<int64_t> tasks{0};
  std::atomic<int64_t> failed{0};
  std::atomic<int64_t> bytes{0};
  std::atomic<int64_t> busy_nanos{0};
};

struct AttentionPool {
  explicit AttentionPool(const AttentionWorkersOptions& given)
      : options(given),
        queue(*given.clock, given.spin),
        counts(static_cast<size_t>(given.threads)) {
    auto* room = reinterpret_cast<float*>(given.partial_memory);
    for (int64_t i = 0; i < given.partials.count; ++i, room += given.partials.floats) {
      queue.add_room(room);
    }
  }
  const AttentionWorkersOptions options;
  AttentionQueue queue;
  std::vector<WorkerCounts> counts;  // by worker
};

class AttentionWorker {
 public:
  AttentionWorker(AttentionPool& pool, int32_t index);

  // Works until the queue stops.
  void run();

 private:
  void begin(AttentionJob& job);
  void work_piece(AttentionJob& job, int32_t piece);
  void finish(AttentionJob& job, bool failed);
  void prepare(AttentionJob& job);
  [[nodiscard]] const std::byte* routed_row(const HopTask& task) const;
  bool append(AttentionJob& job);
  bool cut(AttentionJob& job);
  bool whole(AttentionJob& job);
  template <class Kernel>
  bool touch(AttentionJob& job, const Kernel& kernel);
  WorkerAct ask(WorkerPoint point, const AttentionJob& job);
  void answer(const HopAnswer& answer, WorkerAct act);

  AttentionPool& pool_;
  const AttentionWorkersOptions& options_;
  const AttentionSpec& spec_;
  WorkerCounts& counts_;
  const int32_t index_;
  const Clock& clock_;
  static constexpr size_t kRemembered = 8;
  std::array<HopAnswer, kRemembered> answered_{};  // the last answers, if there is a hook
  size_t answers_ = 0;
  kernels::AttentionPlan plan_;  // of tasks done whole
  AlignedBuffer scratch_;
};

}  // namespace tandem::piggyback
