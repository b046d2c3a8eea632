// SIGINT, SIGTERM and SIGHUP, taken by one thread when it asks. Make one before any other thread,
// which inherit the mask. SIGPIPE is ignored from then on.
#pragma once

#include <signal.h>

#include "base/clock.h"

namespace tandem {

class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    signal(SIGPIPE, SIG_IGN);
  }
  enum class Asked { kNothing, kStop, kReload };
  // What came within `timeout`.
  [[nodiscard]] Asked wait(Nanos timeout) const {
    const timespec time{static_cast<time_t>(timeout.count() / 1000000000),
                        static_cast<long>(timeout.count() % 1000000000)};
    const int signal = sigtimedwait(&set_, nullptr, &time);
    return signal <= 0 ? Asked::kNothing : signal == SIGHUP ? Asked::kReload : Asked::kStop;
  }

 private:
  sigset_t set_{};
};

}  // namespace tandem
