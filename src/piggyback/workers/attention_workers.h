// Attention workers: threads of this process that append a routed row's K and V to the host's KV
// pool and attend over it. They use the kernels of the device's plain path, so results equal that
// path's bit for bit, for any number of threads and any division of the work. (OmniServe 4,
// execution on CPUs.)
//
// Owns its threads; does not own the KV pool or the rows. Threads: as AttentionHost says; in
// withdraw the listener is called on the owner's thread, so it must not take a lock that the owner
// holds. Errors: a task that throws is answered as failed. A worker that hangs keeps the tasks that
// it has touched; the other workers go on.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "kernels/kernels.h"
#include "piggyback/attention_host.h"
#include "piggyback/workers/worker_hook.h"

namespace tandem::piggyback {

// Room for the partial results of tasks whose contexts are divided. A task that finds no room is
// cut into heads.
struct PartialRooms {
  int64_t count = 0;   // tasks at a time
  int64_t floats = 0;  // of each room
  [[nodiscard]] int64_t bytes() const {
    return count * floats * static_cast<int64_t>(sizeof(float));
  }
};
// Enough rooms for `threads` workers to share tasks of contexts up to `context_tokens` well.
PartialRooms partial_rooms(const kernels::KvLayout& layout, int32_t heads, int64_t context_tokens,
                           int32_t threads);

struct AttentionWorkersOptions {
  AttentionSpec spec = {};
  const kernels::Kernels* kernels = nullptr;  // the device's family: families differ in bits
  PartialRooms partials = {};
  std::byte* partial_memory = nullptr;  // 64-byte aligned, of partials.bytes()
  int32_t threads = 1;
  std::vector<int32_t> cpus = {};  // worker i is pinned to cpus[i % size]; empty: not pinned
  // Real time, safe on any thread: the workers spin by it and answers carry its times.
  const Clock* clock = nullptr;
  Nanos spin{0};               // how long an idle worker looks for work before it sleeps
  WorkerHook* hook = nullptr;  // null: no faults
};

struct AttentionPool;  // what the threads share

class AttentionWorkers final : public AttentionHost {
 public:
  static Result<std::unique_ptr<AttentionWorkers>> create(const AttentionWorkersOptions& options);
  // stop(kStopLimit).
  ~AttentionWorkers() override;
  AttentionWorkers(const AttentionWorkers&) = delete;
  AttentionWorkers& operator=(const AttentionWorkers&) = delete;

  void submit(std::span<const HopTask> tasks) override;
  void take_answers(std::vector<HopAnswer>& answers) override;
  void withdraw(HopId hop, int32_t attempt) override;
  void set_listener(AnswerListener listener) override;
  [[nodiscard]] AttentionHostCounts counts() const override;
  [[nodiscard]] int64_t waiting() const override;

  // Frozen workers finish the tasks they have begun and begin no others: for experiments on how far
  // a slow host affects the other tier.
  void freeze();
  void thaw();
  // Tasks that wait or are being worked on; O(tasks).
  [[nodiscard]] int64_t in_hand() const;

  // Ends the threads; open tasks are never answered. Returns how many workers hang and did not end
  // within `limit`: they are left behind, and spec.owner lives until they end. Afterwards answers
  // may be taken, and nothing else may be called.
  int32_t stop(Nanos limit);
  static constexpr Nanos kStopLimit = std::chrono::seconds(2);

 private:
  explicit AttentionWorkers(const AttentionWorkersOptions& options);
  Status start();

  std::shared_ptr<AttentionPool> pool_;  // shared with the threads, which may outlive this object
  std::vector<std::thread> threads_;
};

}  // namespace tandem::piggyback
