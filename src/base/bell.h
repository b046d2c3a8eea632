// A one-bit signal between threads: it is rung, and one thread waits for that. Rings between two
// waits count as one.
//
// Threads: ring() on any, the waits on one at a time.
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/clock.h"

namespace tandem {

class Bell {
 public:
  void ring() {
    const std::lock_guard lock(mutex_);
    rung_ = true;
    wake_.notify_one();
  }
  // Returns once it has been rung since the last wait.
  void wait() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return rung_; });
    rung_ = false;
  }
  // The same, but for `limit` at most.
  void wait_for(Nanos limit) {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, limit, [this] { return rung_; });
    rung_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool rung_ = false;  // guarded by mutex_
};

}  // namespace tandem
