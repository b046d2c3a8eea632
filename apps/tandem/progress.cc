#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/log.h"
#include "base/units.h"

namespace tandem {

ProgressBar::ProgressBar(std::string what, const Clock& clock)
    : what_(std::move(what)),
      clock_(clock),
      began_(clock.now()),
      terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressBar::show(int64_t bytes_done, int64_t bytes_total) {
  done_ = bytes_done;
  const Nanos now = clock_.now();
  last_ = now;
  const Nanos pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(5);
  if (now - std::max(shown_, began_) < pause) {
    return;
  }
  shown_ = now;
  const double share =
      bytes_total > 0 ? static_cast<double>(bytes_done) / static_cast<double>(bytes_total) : 0.0;
  if (!terminal_) {
    log::info("{}: {:.0f} % of {}", what_, share * 100, format_bytes(bytes_total));
    return;
  }
  constexpr int kWidth = 40;
  const int filled = static_cast<int>(share * kWidth);
  // Not fmt::print, which throws when the terminal is closed.
  std::fputs(fmt::format("\r{} [{}{}] {:3.0f} % of {} ", what_,
                         std::string(static_cast<size_t>(filled), '#'),
                         std::string(static_cast<size_t>(kWidth - filled), '.'), share * 100,
                         format_bytes(bytes_total))
                 .c_str(),
             stderr);
}

void ProgressBar::clear() const {
  if (terminal_ && shown_ > Nanos{0}) {
    std::fputs("\r\033[K", stderr);
  }
}

void ProgressBar::finish() {
  const Nanos took = std::max(last_, began_) - began_;
  clear();
  log::info("{}: {} in {} ({:.2f} GB/s)", what_, format_bytes(done_), format_duration(took),
            static_cast<double>(done_) / static_cast<double>(std::max<int64_t>(took.count(), 1)));
}

CountProgress::CountProgress(std::string things, const Clock& clock)
    : things_(std::move(things)),
      clock_(clock),
      began_(clock.now()),
      terminal_(::isatty(STDERR_FILENO) == 1) {}

void CountProgress::show(int64_t done, int64_t total) {
  const Nanos now = clock_.now();
  const Nanos pause = terminal_ ? std::chrono::milliseconds(200) : std::chrono::seconds(10);
  done_ = done;
  total_ = total;
  if (now - shown_ < pause || (!terminal_ && done == shown_done_)) {
    return;
  }
  shown_ = now;
  shown_done_ = done;
  const double passed = to_seconds(now - began_);
  std::string text = fmt::format("{}{} {}, {:.0f} s", done,
                                 total > 0 ? fmt::format(" of {}", total) : "", things_, passed);
  if (done > 0 && total > done) {
    text += fmt::format(", about {:.0f} s left",
                        passed * static_cast<double>(total - done) / static_cast<double>(done));
  }
  // Not fmt::print, which throws when the terminal is closed.
  std::fputs(
      fmt::format("{}{}{}", terminal_ ? "\r" : "", text, terminal_ ? "\033[K" : "\n").c_str(),
      stderr);
  std::fflush(stderr);
}

void CountProgress::finish() const {
  std::fputs(fmt::format("{}{}{} {} in {}\n", terminal_ ? "\r\033[K" : "", done_,
                         total_ > 0 ? fmt::format(" of {}", total_) : "", things_,
                         format_duration(clock_.now() - began_))
                 .c_str(),
             stderr);
}

}  // namespace tandem
