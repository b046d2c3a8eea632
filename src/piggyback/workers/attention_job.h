// A task on its way through the workers, and the queue that they share. Internal to workers/.
//
// Small tasks go whole; what is larger is cut into pieces by the worker that begins it, which the
// others then help with before they begin anything new. So one that hangs holds up the tasks it has
// touched, and no other.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/clock.h"
#include "kernels/attention.h"
#include "piggyback/workers/attention_task.h"

namespace tandem::piggyback {

// Who may touch the memory of a task, and who answers for it: exactly one caller is told to.
class TaskGate {
 public:
  void open() { state_.store(0, std::memory_order_relaxed); }
  // Before memory of the task is touched; false: it was withdrawn. leave() follows a true one.
  bool enter() {
    uint32_t state = state_.load(std::memory_order_relaxed);
    do {
      if (state >= kAnswered) {
        return false;
      }
    } while (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel));
    return true;
  }
  // True: the task was withdrawn meanwhile and nobody is inside any more; the caller answers.
  bool leave() { return state_.fetch_sub(1, std::memory_order_acq_rel) == kWithdrawn + 1; }
  // True: nobody is inside or ever will be; the caller answers.
  bool withdraw() { return state_.fetch_or(kWithdrawn, std::memory_order_acq_rel) == 0; }
  // The work is over. True: the caller answers. False: it was withdrawn, which somebody answers.
  bool finish() {
    uint32_t nobody = 0;
    return state_.compare_exchange_strong(nobody, kAnswered, std::memory_order_acq_rel);
  }

 private:
  static constexpr uint32_t kAnswered = uint32_t{1} << 30;
  static constexpr uint32_t kWithdrawn = uint32_t{1} << 31;
  std::atomic<uint32_t> state_{0};  // how many are inside, or one of these beside it
};

struct AttentionJob {
  // All that handing over touches lies together.
  AttentionTask task;
  // The queue's, under its mutex.
  AttentionJob* next = nullptr;
  bool active = false;  // begun and not given back
  bool failed = false;
  int32_t next_piece = 0;
  int32_t unfinished_pieces = 0;

  TaskGate gate;

  // Written by the worker that begins it, before it is cut.
  kernels::AttentionSlice slice;
  kernels::AttentionArgs args;
  kernels::AttentionPlan plan;
  float* partials = nullptr;  // a room of the queue's; null: it has none
  Nanos began{0};
  int64_t bytes = 0;
};

// What a worker is to do next.
struct AttentionWork {
  AttentionJob* job = nullptr;
  int32_t piece = -1;  // of plan.tasks; -1: begin the job
};

class AttentionQueue {
 public:
  explicit AttentionQueue(Nanos spin) : spin_(spin) {}
  // Rooms for partial results that jobs may have; before anything else.
  void add_room(float* room) { rooms_.push_back(room); }

  // -- from the engine's thread
  void submit(std::span<const AttentionTask> tasks);
  void take_done(std::vector<AttentionDone>& done);
  // Answers for a task that no kernel works on now; else the kernel's worker does.
  void withdraw(HopId hop, int32_t attempt);
  void set_listener(std::function<void()> listener);
  void gather_answers(Nanos apart);
  void freeze();
  void thaw();
  void stop();
  // Waits at most `limit` for `workers` to have called exited(); returns how many have.
  int32_t wait_for_exits(int32_t workers, Nanos limit);
  [[nodiscard]] int64_t waiting() const;
  [[nodiscard]] int64_t in_hand() const;

  // -- from workers
  // Blocks; false: stop.
  bool take(AttentionWork& work);
  // A room for the job's partial results, if there is one; it goes back with the job.
  void take_room(AttentionJob& job);
  // The job's plan is cut into pieces from here on.
  void publish(AttentionJob& job);
  // True: it was the last one, and the caller finishes the job. `failed` of any piece holds for
  // all.
  bool piece_done(AttentionJob& job, bool failed);
  [[nodiscard]] bool any_failed(AttentionJob& job) const;
  void answer(const AttentionDone& done, int32_t times);
  // Nobody works on the job any more; it may be another task's at once.
  void give_back(AttentionJob& job);
  void exited();

 private:
  struct List {
    AttentionJob* first = nullptr;
    AttentionJob* last = nullptr;
    void push(AttentionJob* job);
    void push_first(AttentionJob* job);
    AttentionJob* pop();
  };

  bool take_now(AttentionWork& work);
  AttentionJob* begin_next();
  [[nodiscard]] int64_t waiting_now() const {
    return std::ssize(waiting_) - static_cast<int64_t>(next_waiting_);
  }
  void wake(int64_t pieces, int64_t sleepers);
  bool deliver(const AttentionDone& done, int32_t times);
  [[nodiscard]] bool may_wait(const AttentionDone& done) const;
  void tell();

  const Nanos spin_;
  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable exits_;
  std::atomic<uint32_t> changes_{0};  // of what workers wait for; looked at while they spin
  std::mutex listener_mutex_;         // never taken under mutex_, nor it under this
  std::function<void()> listener_;    // GUARDED_BY(listener_mutex_)
  // GUARDED_BY(mutex_) from here on.
  std::vector<std::unique_ptr<AttentionJob>> jobs_;
  std::vector<float*> rooms_;  // that no job has
  List unused_;                // a stack: the one given back last is the warmest in cache
  // Tasks that nobody has begun, from next_waiting_ on. A row of them and no jobs: these have been
  // in a worker's cache, and the engine's thread would wait for each.
  std::vector<AttentionTask> waiting_;
  size_t next_waiting_ = 0;
  List cut_;  // with pieces that nobody has taken
  std::vector<AttentionDone> done_;
  bool told_ = false;   // of those in done_
  Nanos last_told_{0};  // by the end of the answer that it was told of
  Nanos apart_{0};
  int64_t sleepers_ = 0;
  int32_t exited_ = 0;
  bool frozen_ = false;
  bool stop_ = false;
};

}  // namespace tandem::piggyback
