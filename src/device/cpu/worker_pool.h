// The threads that compute. A job is a number of chunks and a function; the thread that brings it
// works on it together with the workers, who claim chunks one by one, so a core that a neighbour
// slows down simply takes fewer. Idle workers look for work for a short time, then sleep.
//
// Several threads may bring jobs at once, each at a desk of its own; workers take a chunk from each
// desk in turn, so the jobs share the workers fairly. Nothing here allocates after construction
// except a workspace that grows to the largest size asked for.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "device/cpu/pages.h"

namespace tandem::device {

struct WorkerPoolOptions {
  int32_t threads = 1;             // the bringing thread included: threads - 1 workers
  Nanos spin{0};                   // how long an idle worker looks for work before it sleeps
  std::vector<int32_t> cpus = {};  // worker i is pinned to cpus[i % size]; empty: not pinned
};

// chunks >= 1. `run` is called once for each chunk 0 .. chunks-1, on any thread.
struct PoolJob {
  void (*run)(const void* context, int64_t chunk, void* scratch) = nullptr;
  const void* context = nullptr;
  int64_t chunks = 0;
  int64_t scratch_bytes = 0;  // workspace given to `run`
};

class WorkerPool {
 public:
  static constexpr int32_t kMaxDesks = 64;

  static Result<std::unique_ptr<WorkerPool>> create(const WorkerPoolOptions& options);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  [[nodiscard]] int32_t threads() const { return threads_; }
  [[nodiscard]] Nanos spin() const { return spin_; }

  // A place to bring jobs to, for one thread at a time; at most kMaxDesks in the pool's life.
  int32_t open_desk();

  // Returns when every chunk is done; their effects are then visible. `scratch` is the caller's.
  void run(int32_t desk, const PoolJob& job, Scratch& scratch);

 private:
  struct alignas(64) Desk {
    // generation << 32 | chunks nobody has claimed. A successful claim keeps the job below alive
    // and unchanged until that chunk is finished.
    std::atomic<uint64_t> open{0};
    PoolJob job;
    alignas(64) std::atomic<uint32_t> unfinished{0};
    std::atomic<uint32_t> owner_sleeps{0};
  };

  WorkerPool(int32_t threads, Nanos spin) : threads_(threads), spin_(spin) {}
  Status start(const std::vector<int32_t>& cpus);
  void work();
  bool take_chunk(Desk& desk, Scratch& scratch);
  void wait_for_rest(Desk& desk);

  const int32_t threads_;
  const Nanos spin_;
  std::array<Desk, kMaxDesks> desks_;
  std::atomic<int32_t> desk_count_{0};
  alignas(64) std::atomic<uint32_t> posted_{
      0};  // changes with every job; sleeping workers wait on it
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace tandem::device
