// The state of a task in the workers, and the queue that the workers share. Internal to workers/.
//
// Small tasks are computed whole. A worker that begins a larger task cuts it into pieces, which the
// other workers take before they begin a new task. So a worker that hangs holds up the tasks that
// it has touched, and no others.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <vector>

#include "base/clock.h"
#include "kernels/attention.h"
#include "piggyback/attention_host.h"
#include "piggyback/core/hop_types.h"

namespace tandem::piggyback {

// Decides who may touch the memory of a task and who answers it: exactly one caller is told to.
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
  // True: the task was withdrawn meanwhile and no worker is inside any more; the caller answers.
  bool leave() { return state_.fetch_sub(1, std::memory_order_acq_rel) == kWithdrawn + 1; }
  // True: no worker is inside or will ever be; the caller answers.
  bool withdraw() { return state_.fetch_or(kWithdrawn, std::memory_order_acq_rel) == 0; }
  // The work is over. True: the caller answers. False: it was withdrawn and is answered elsewhere.
  bool finish() {
    uint32_t inside = 0;
    return state_.compare_exchange_strong(inside, kAnswered, std::memory_order_acq_rel);
  }

 private:
  static constexpr uint32_t kAnswered = uint32_t{1} << 30;
  static constexpr uint32_t kWithdrawn = uint32_t{1} << 31;
  std::atomic<uint32_t> state_{0};  // how many are inside, or one of these beside it
};

struct AttentionJob {
  // All that handing over touches lies together.
  HopTask task;
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
  // An idle worker looks for work for `spin` before it sleeps.
  AttentionQueue(const Clock& clock, Nanos spin) : clock_(clock), spin_(spin) {}
  // Rooms for partial results that jobs may have; before anything else.
  void add_room(float* room) { rooms_.push_back(room); }

  // -- from the engine's thread
  void submit(std::span<const HopTask> tasks);
  void take_answers(std::vector<HopAnswer>& answers);
  // Answers for a task that no kernel works on now; else the kernel's worker does.
  void withdraw(HopId hop, int32_t attempt);
  void set_listener(AnswerListener listener);
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
  void answer(const HopAnswer& answer, int32_t times);
  // No worker works on the job any more; it may be another task's at once.
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
  void notify(const AnswerNotice& notice);

  const Clock& clock_;
  const Nanos spin_;
  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable exits_;
  std::atomic<uint32_t> changes_{0};  // of what workers wait for; looked at while they spin
  // Shared by the workers that call the listener, so that none waits for another's call. Never
  // taken under mutex_, nor mutex_ under it.
  std::shared_mutex listener_mutex_;
  AnswerListener listener_;  // GUARDED_BY(listener_mutex_)
  // GUARDED_BY(mutex_) from here on.
  std::vector<std::unique_ptr<AttentionJob>> jobs_;
  std::vector<float*> rooms_;  // that no job has
  List unused_;                // a stack: the job given back last is the warmest in cache
  // Tasks that no worker has begun, from next_waiting_ on. They are stored apart from the jobs: a
  // job was in a worker's cache, and the engine thread would wait for each of its cache lines.
  std::vector<HopTask> waiting_;
  size_t next_waiting_ = 0;
  List cut_;  // with pieces that no worker has taken
  std::vector<HopAnswer> answers_;
  int64_t sleepers_ = 0;
  int32_t exited_ = 0;
  bool frozen_ = false;
  bool stop_ = false;
};

}  // namespace tandem::piggyback
