// Lets the thread that drives an engine by hand sleep until a step has ended or a tier has news.
#pragma once

#include <condition_variable>
#include <mutex>

namespace tandem {

class StepBell {
 public:
  // The executor's completion listener; any thread.
  void ring() {
    const std::lock_guard lock(mutex_);
    rung_ = true;
    wake_.notify_one();
  }
  // Until it was rung since the last wait.
  void wait() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return rung_; });
    rung_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool rung_ = false;
};

}  // namespace tandem
