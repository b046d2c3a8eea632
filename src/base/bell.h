// A one-bit signal between threads: it is rung, and one thread waits for that. Rings between two
// waits count as one. In virtual time a subclass lets time pass instead (sim/virtual_bell.h).
//
// Threads: ring() on any, the waits on one at a time.
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/clock.h"

namespace tandem {

class Bell {
 public:
  Bell() = default;
  virtual ~Bell() = default;
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;

  virtual void ring() {
    const std::lock_guard lock(mutex_);
    rung_ = true;
    wake_.notify_one();
  }
  // Returns once it has been rung since the last wait.
  virtual void wait() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return rung_; });
    rung_ = false;
  }
  // The same, but for `limit` at most.
  virtual void wait_for(Nanos limit) {
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
