// One stream of the cpu back end: a queue, the thread that works it off in order, and the events
// recorded on it (numbers that rise by one).
//
// Threads: launch, record and wait from one issuing thread; completed and synchronize from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "device/cpu/stream_queue.h"
#include "device/device.h"

namespace tandem::device {

// A number that only rises, and that threads can wait for.
class Milestone {
 public:
  [[nodiscard]] bool reached(int64_t number) const {
    return value_.load(std::memory_order_acquire) >= number;
  }
  void reach(int64_t number);                 // one thread
  void wait_for(int64_t number, Nanos spin);  // any thread

 private:
  std::atomic<int64_t> value_{0};
  std::atomic<uint32_t> changes_{0};  // what sleepers sleep on
  std::atomic<uint32_t> sleepers_{0};
};

// What a stream does with its entries, called by the stream's thread alone.
class StreamWork {
 public:
  virtual ~StreamWork() = default;
  virtual void run(const Op& op) = 0;
  // All ops before an event have run; the event is complete when this returns.
  virtual void before_event() = 0;
  // The stream begins, or had nothing to do or waited for another's event and goes on.
  virtual void after_pause() = 0;
};

struct CpuStreamOptions {
  Nanos spin{0};                   // how long an idle stream looks for work before it sleeps
  std::vector<int32_t> cpus = {};  // its thread runs on these; empty: anywhere
};

class CpuStream {
 public:
  // Throws std::system_error when the thread cannot start.
  CpuStream(std::unique_ptr<StreamWork> work, const CpuStreamOptions& options);
  ~CpuStream();  // as stop()
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;

  // The stream learns of ops and waits by an event that is recorded behind them, or when many have
  // gathered: one publication and at most one wake-up for many of them.
  void launch(const Op& op) {
    queue_.push(op);
    if (++quiet_ops_ >= kMaxQuietOps) {
      publish();
    }
  }
  int64_t record(const std::function<void()>* listener);
  void wait(CpuStream& other, int64_t event);
  // Finishes everything that was launched, then ends the thread. Streams that wait for each other
  // must all be stopped before one is destroyed.
  void stop();

  [[nodiscard]] int64_t recorded() const { return recorded_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool completed(int64_t event) const { return completed_.reached(event); }
  // Also waits until the event's listener call has returned.
  void synchronize(int64_t event) { settled_.wait_for(event, Nanos{0}); }

 private:
  static constexpr int32_t kMaxQuietOps = 32;

  void publish();  // and wake
  void work_off();
  const StreamEntry* next_entry();
  void complete(const RecordEntry& record);

  StreamQueue queue_;
  int32_t quiet_ops_ = 0;  // issuing thread's: launched since it last published
  std::atomic<uint32_t> asleep_{0};
  std::atomic<int64_t> recorded_{0};
  Milestone completed_;
  Milestone settled_;
  const Nanos spin_;
  const std::unique_ptr<StreamWork> work_;  // stream thread only
  std::thread thread_;                      // last: uses all of the above
};

}  // namespace tandem::device
