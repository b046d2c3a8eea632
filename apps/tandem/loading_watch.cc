#include "loading_watch.h"

#include <cstdlib>
#include <utility>

#include "base/log.h"

namespace tandem {

LoadingWatch::LoadingWatch(const Signals& signals, int exit_code, std::function<void()> reload)
    : signals_(signals),
      exit_code_(exit_code),
      reload_(std::move(reload)),
      thread_([this] { watch(); }) {}

LoadingWatch::~LoadingWatch() { static_cast<void>(finish()); }

void LoadingWatch::watch() {
  constexpr Nanos kPause = std::chrono::milliseconds(10);
  while (true) {
    const Signals::Asked asked = signals_.wait(kPause);
    const bool reload = asked == Signals::Asked::kReload && reload_ != nullptr;
    const bool stop = asked != Signals::Asked::kNothing && !reload;
    const std::lock_guard lock(mutex_);
    if (stop && !over_) {
      log::info("stopped while loading");
      std::_Exit(exit_code_);
    }
    if (reload) {
      reload_();
    }
    asked_ = asked_ || stop;
    if (over_) {
      return;
    }
  }
}

bool LoadingWatch::finish() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  if (thread_.joinable()) {
    thread_.join();
  }
  return asked_;
}

}  // namespace tandem
