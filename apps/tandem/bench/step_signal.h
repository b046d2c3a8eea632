// Lets a measuring thread sleep while a step runs.
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/clock.h"

namespace tandem::bench {

class StepSignal {
 public:
  void completed() {
    const std::lock_guard lock(mutex_);
    completed_ = true;
    wake_.notify_one();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return completed_; });
    completed_ = false;
  }
  // Not longer than `limit`.
  void wait_for(Nanos limit) {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, limit, [&] { return completed_; });
    completed_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool completed_ = false;
};

}  // namespace tandem::bench
