#include "piggyback/core/watchdog.h"

#include <algorithm>

#include "base/check.h"

namespace tandem::piggyback {
namespace {

constexpr int32_t kMostDoublings = 10;

}  // namespace

Watchdog::Watchdog(const WatchdogOptions& options) : options_(options) {
  CHECK(options.age > Nanos{0}, "an age of {} ns", options.age.count());
}

int64_t Watchdog::check(Nanos now, HopCore& core, std::vector<HopTask>& dropped) {
  int64_t given_up = 0;
  core.stragglers(now, options_.age, dropped);
  overdue_.clear();
  core.overdue(now, options_.age, overdue_);
  for (const HopTask& task : overdue_) {
    const int doublings = std::min(task.attempt, kMostDoublings);
    if (now - task.handed_out >= options_.age * (1 << doublings)) {
      dropped.push_back(task);
      core.retry(task.hop);
      ++given_up;
    }
  }
  core.strand_check(now, last_patience(core));
  return given_up;
}

void Watchdog::check_lost(Nanos now, HopCore& core, std::vector<HopTask>& lost) const {
  core.lose(now, last_patience(core), lost);
}

// As long as a further attempt would get.
Nanos Watchdog::last_patience(const HopCore& core) const {
  return options_.age * (1 << std::min(core.limits().attempts, kMostDoublings));
}

}  // namespace tandem::piggyback
