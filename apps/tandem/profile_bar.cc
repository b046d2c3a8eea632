#include "profile_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string>

#include "base/log.h"

namespace tandem {

ProfileBar::ProfileBar(const Clock& clock)
    : clock_(clock), shown_(clock.now()), terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProfileBar::show(double share, std::string_view what) {
  const Nanos now = clock_.now();
  const Nanos pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(5);
  if (now - shown_ < pause) {
    return;
  }
  shown_ = now;
  if (!terminal_) {
    log::info("measuring step times: {:.0f} %, {}", share * 100, what);
    return;
  }
  constexpr int kWidth = 40;
  const auto filled = static_cast<size_t>(share * kWidth);
  drawn_ = true;
  fmt::print(stderr, "\r\033[Kmeasuring step times [{}{}] {:3.0f} %, {}", std::string(filled, '#'),
             std::string(kWidth - filled, '.'), share * 100, what);
}

void ProfileBar::clear() {
  if (drawn_) {
    fmt::print(stderr, "\r\033[K");
    drawn_ = false;
  }
}

}  // namespace tandem
