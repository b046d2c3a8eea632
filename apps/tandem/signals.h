// SIGINT, SIGTERM and SIGHUP, taken by one thread when it asks; wake() lets it ask sooner. Make one
// before any other thread,
// which inherit the mask. SIGPIPE and SIGXFSZ are ignored from then on: a write that the client or
// the limit on the size of files ends is an error of that write, not the end of the server.
#pragma once

#include <signal.h>
#include <unistd.h>

#include "base/clock.h"

namespace tandem {

class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGHUP);
    sigaddset(&set_, kWake);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
  }
  enum class Asked { kNothing, kStop, kReload };
  // What came within `timeout`.
  [[nodiscard]] Asked wait(Nanos timeout) const {
    const int signal = take(timeout);
    if (signal <= 0 || signal == kWake) {
      return Asked::kNothing;
    }
    return signal == SIGHUP ? Asked::kReload : Asked::kStop;
  }
  // Ends a wait, this one or the next, with kNothing. Any thread.
  void wake() const { kill(getpid(), kWake); }
  // The number of the signal that came within `timeout`; not positive: none came.
  [[nodiscard]] int take(Nanos timeout) const {
    const timespec time{static_cast<time_t>(timeout.count() / 1000000000),
                        static_cast<long>(timeout.count() % 1000000000)};
    return sigtimedwait(&set_, nullptr, &time);
  }

 private:
  static constexpr int kWake = SIGUSR1;
  sigset_t set_{};
};

}  // namespace tandem
