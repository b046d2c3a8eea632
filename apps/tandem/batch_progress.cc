#include "batch_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/log.h"
#include "base/units.h"

namespace tandem {

namespace {

double seconds(Nanos time) { return static_cast<double>(time.count()) / 1e9; }

// "3m 20s left", from the pace of this run; empty before there is one.
std::string time_left(const jobs::BatchProgress& p, Nanos took) {
  const int64_t open = p.total - p.before - p.done;
  if (p.done == 0 || open == 0) {
    return "";
  }
  const double left = seconds(took) * static_cast<double>(open) / static_cast<double>(p.done);
  return fmt::format(", {} left",
                     format_duration(std::chrono::seconds(static_cast<int64_t>(left) + 1)));
}

std::string describe(const jobs::BatchProgress& p, Nanos took) {
  return fmt::format("{}/{} lines, {} errors, {} running, {:.0f} tokens/s{}", p.before + p.done,
                     p.total, p.failed, p.running,
                     static_cast<double>(p.output_tokens) / std::max(seconds(took), 1e-3),
                     time_left(p, took));
}

}  // namespace

BatchBar::BatchBar(const Clock& clock)
    : clock_(clock), began_(clock.now()), shown_(began_), terminal_(::isatty(STDERR_FILENO) == 1) {}

void BatchBar::show(const jobs::BatchProgress& progress) {
  const Nanos now = clock_.now();
  const Nanos pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(5);
  if (now - shown_ < pause) {
    return;
  }
  shown_ = now;
  if (!terminal_) {
    log::info("batch: {}", describe(progress, now - began_));
    return;
  }
  constexpr int64_t kWidth = 30;
  const int64_t done = progress.before + progress.done;
  const auto filled = static_cast<size_t>(kWidth * done / std::max<int64_t>(progress.total, 1));
  fmt::print(stderr, "\r\033[K[{}{}] {}", std::string(filled, '#'),
             std::string(static_cast<size_t>(kWidth) - filled, '.'),
             describe(progress, now - began_));
  drawn_ = true;
}

void BatchBar::clear() const {
  if (drawn_) {
    fmt::print(stderr, "\r\033[K");
  }
}

void BatchBar::finish(const jobs::BatchProgress& p) {
  clear();
  const Nanos took = clock_.now() - began_;
  log::info(
      "batch: {} of {} lines answered ({} before this run, {} errors in this run), {} prompt and "
      "{} output tokens in {} ({:.0f} tokens/s)",
      p.before + p.done, p.total, p.before, p.failed, p.prompt_tokens, p.output_tokens,
      format_duration(took), static_cast<double>(p.output_tokens) / std::max(seconds(took), 1e-3));
}

}  // namespace tandem
