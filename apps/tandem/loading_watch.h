// Answers signals while the main thread loads weights or measures step times, which may take
// minutes inside one call: a stop ends the process at once. Nothing is lost by that: no request has
// been accepted, and files are written beside their place and moved.
#pragma once

#include <functional>
#include <mutex>
#include <thread>

#include "signals.h"

namespace tandem {

class LoadingWatch {
 public:
  // `exit_code` is that of a process which is stopped. `reload` is called for SIGHUP, on the
  // watch's thread; where it is empty SIGHUP is a stop like SIGTERM and SIGINT.
  LoadingWatch(const Signals& signals, int exit_code, std::function<void()> reload);
  ~LoadingWatch();

  // Loading is over: signals end nothing any more. True: a stop was asked for since.
  [[nodiscard]] bool finish();

 private:
  void watch();

  const Signals& signals_;
  const int exit_code_;
  const std::function<void()> reload_;
  std::mutex mutex_;
  bool over_ = false;   // GUARDED_BY(mutex_)
  bool asked_ = false;  // after loading; GUARDED_BY(mutex_)
  std::thread thread_;
};

}  // namespace tandem
