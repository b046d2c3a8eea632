// The threads that compute. A job is a number of chunks and a function; the thread that brings it
// works on it together with the workers, who claim chunks one by one, so a core that a neighbour
// slows down simply takes fewer. Idle workers look for work for a short time, then sleep.
//
// Several threads may bring jobs at once, each at a desk of its own; workers take a chunk from each
// desk in turn, so the jobs share the workers fairly. Nothing here allocates after construction
// except a workspace that grows to the largest size asked for.
//
// Where threads are on several memory nodes, a job may say that its chunks belong to nodes: each
// thread then takes those of its own node first and helps the others when they are gone.
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
#include "device/cpu/seats.h"

namespace tandem::device {

struct WorkerPoolOptions {
  int32_t threads = 1;  // the bringing thread included: threads - 1 workers
  Nanos spin{0};        // how long an idle worker looks for work before it sleeps
  // Thread i sits at seats[i % size], in order of shares; empty: anywhere, on one node. The
  // bringing thread, which is no worker, is the caller's to pin.
  std::vector<Seat> seats = {};
};

// Who takes which chunk.
enum class ChunkOrder : uint8_t {
  kAsTheyCome,    // the next one, whoever asks
  kOwnNodeFirst,  // Shares::begin(chunks, share) says where those of a node begin
};

// chunks >= 1. `run` is called once for each chunk 0 .. chunks-1, on any thread.
struct PoolJob {
  void (*run)(const void* context, int64_t chunk, void* scratch) = nullptr;
  const void* context = nullptr;
  int64_t chunks = 0;
  int64_t scratch_bytes = 0;  // workspace given to `run`
  ChunkOrder order = ChunkOrder::kAsTheyCome;
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
  [[nodiscard]] const Shares& shares() const { return shares_; }

  // A place to bring jobs to, for one thread at a time; at most kMaxDesks in the pool's life.
  int32_t open_desk();

  // Returns when every chunk is done; their effects are then visible. `scratch` is the caller's,
  // who works as a thread of the first node.
  void run(int32_t desk, const PoolJob& job, Scratch& scratch);

 private:
  // The job's number << 32 | chunks of a share that nobody has claimed. A successful claim keeps
  // the desk's job alive and unchanged until that chunk is finished.
  using OpenChunks = std::atomic<uint64_t>;
  struct alignas(64) OtherShare {
    OpenChunks open{0};
  };
  struct alignas(64) Desk {
    OpenChunks open{0};  // of the first share; of all chunks where they have no nodes
    PoolJob job;
    std::unique_ptr<OtherShare[]> others;
    std::atomic<uint32_t> opened{0};  // number of the job whose shares are all open; several nodes
    alignas(64) std::atomic<uint32_t> unfinished{0};
    std::atomic<uint32_t> owner_sleeps{0};
  };

  WorkerPool(int32_t threads, Nanos spin, Shares shares);
  Status start(const std::vector<Seat>& seats);
  void work(int32_t share);
  static OpenChunks& open_chunks(Desk& desk, int32_t share) {
    return share == 0 ? desk.open : desk.others[static_cast<size_t>(share) - 1].open;
  }
  [[nodiscard]] bool by_node(const PoolJob& job) const {
    return several_nodes_ && job.order == ChunkOrder::kOwnNodeFirst;
  }
  void open_chunks_of(Desk& desk);
  // Of the share, or of one that has any left.
  bool take_chunk(Desk& desk, int32_t share, Scratch& scratch);
  bool take_chunk_of(int32_t share, Desk& desk, uint32_t number, Scratch& scratch);
  void wait_for_rest(Desk& desk);

  const int32_t threads_;
  const Nanos spin_;
  const Shares shares_;
  const bool several_nodes_;
  std::array<Desk, kMaxDesks> desks_;
  std::atomic<int32_t> desk_count_{0};
  alignas(64) std::atomic<uint32_t> posted_{
      0};  // changes with every job; sleeping workers wait on it
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace tandem::device
