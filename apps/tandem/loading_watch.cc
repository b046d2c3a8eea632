#include "loading_watch.h"

#include <cstdlib>
#include <utility>

#include "base/log.h"

namespace tandem {

LoadingWatch::LoadingWatch(const Signals& signals, std::function<void()> reload)
    : signals_(signals), reload_(std::move(reload)), thread_([this] { watch(); }) {}

LoadingWatch::~LoadingWatch() { static_cast<void>(finish()); }

void LoadingWatch::watch() {
  constexpr Nanos kPause = std::chrono::milliseconds(10);
  while (true) {
    const Signals::Asked asked = signals_.wait(kPause);
    const std::lock_guard lock(mutex_);
    if (asked == Signals::Asked::kStop && !over_) {
      log::info("stopped while loading");
      std::_Exit(0);
    }
    if (asked == Signals::Asked::kReload) {
      reload_();
    }
    asked_ = asked_ || asked == Signals::Asked::kStop;
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
