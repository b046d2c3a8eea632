// Host attention workers: threads that append a routed row's K and V to the host KV pool and attend
// over it with the kernels that the device's plain path uses, so the results are its results bit
// for bit, however many threads there are and however the work was cut. (OmniServe 4, execution on
// CPUs.)
//
// Does not know the hop core: whoever owns both moves tasks and answers. Owns its threads, neither
// the KV pool nor the rows. Threads: one owner's for all functions; the listener is called on a
// worker's thread (in withdraw on the owner's) and must be quick and take no lock that its owner
// holds while calling in here. Errors: a task that throws is answered as failed; a worker that
// hangs keeps the tasks it has touched, the others go on without it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/element_type.h"
#include "base/result.h"
#include "kernels/kernels.h"
#include "piggyback/workers/attention_task.h"
#include "piggyback/workers/worker_hook.h"

namespace tandem::piggyback {

// Room for the partial results of tasks whose contexts are divided: so many of them at a time.
// Others are cut into heads.
struct PartialRooms {
  int64_t count = 0;
  int64_t floats = 0;  // of each
  [[nodiscard]] int64_t bytes() const {
    return count * floats * static_cast<int64_t>(sizeof(float));
  }
};
// As much as lets `threads` workers share tasks of contexts up to `context_tokens` well.
PartialRooms partial_rooms(const kernels::KvLayout& layout, int32_t heads, int64_t context_tokens,
                           int32_t threads);

struct HostAttentionOptions {
  const kernels::Kernels* kernels = nullptr;  // the device's family: families differ in bits
  kernels::KvLayout layout;
  std::byte* kv = nullptr;  // the host pool's start
  int32_t heads = 0;        // of q
  float scale = 0.0F;
  std::vector<int32_t> windows = {};  // by layer, 0: all tokens; empty: no layer has one
  ElementType out_type = ElementType::kBF16;
  PartialRooms partials = {};
  std::byte* partial_memory = nullptr;  // 64-byte aligned, of partials.bytes()
  int32_t threads = 1;
  std::vector<int32_t> cpus = {};  // worker i is pinned to cpus[i % size]; empty: not pinned
  Nanos spin{0};                   // how long an idle worker looks for work before it sleeps
  WorkerHook* hook = nullptr;
  // Lives as long as any worker does, also one that hangs and is left behind: for the owner of all
  // that workers touch.
  std::shared_ptr<const void> kept = nullptr;
};

// Sums since the start, over all workers.
struct HostAttentionStatistics {
  int64_t tasks = 0;  // answered, not failed
  int64_t failed = 0;
  int64_t bytes = 0;  // of K and V read
  Nanos busy{0};      // in kernels: bytes / busy is one worker's rate
};

struct AttentionCrew;  // what the threads share

class HostAttention {
 public:
  static Result<std::unique_ptr<HostAttention>> create(const HostAttentionOptions& options);
  // stop(kStopLimit).
  ~HostAttention();
  HostAttention(const HostAttention&) = delete;
  HostAttention& operator=(const HostAttention&) = delete;

  void submit(std::span<const AttentionTask> tasks);
  // Appends the answers since the last call.
  void take_done(std::vector<AttentionDone>& done);
  // Called when answers are there after none were; once, until they are taken. Setting another one
  // (or nullptr) waits for a call of the last one to end.
  void set_listener(std::function<void()> listener);
  // As long as tasks wait for a worker, calls are at least so far apart: for an owner who looks for
  // answers by himself now and then. 0, as it is at first: whenever there are answers. Setting it
  // back calls nobody: whoever does looks for answers himself.
  void gather_answers(Nanos apart);
  // The attempt is not wanted any more: unless a kernel is working on it at this moment, it is
  // answered as failed at once, even while its worker hangs, and its memory will not be touched;
  // else as soon as that kernel ends. Every attempt is answered once.
  void withdraw(HopId hop, int32_t attempt);

  // Frozen workers end what they have in hand and begin nothing: for experiments on what the other
  // tier notices.
  void freeze();
  void thaw();

  // Ends the threads; tasks not answered never are. Returns how many workers hang and did not end
  // within `limit`: these are left behind, and what they work on must outlive them (see `kept`).
  // After it answers may be taken, nothing else done.
  int32_t stop(Nanos limit);
  static constexpr Nanos kStopLimit = std::chrono::seconds(2);

  [[nodiscard]] HostAttentionStatistics statistics() const;
  [[nodiscard]] int64_t waiting() const;  // tasks that no worker has begun
  [[nodiscard]] int64_t in_hand() const;  // these, and those that one works on; O(tasks)

 private:
  explicit HostAttention(const HostAttentionOptions& options);
  Status start();

  std::shared_ptr<AttentionCrew> crew_;  // also the threads', which may outlive this
  std::vector<std::thread> threads_;
};

}  // namespace tandem::piggyback
