// Looks for hops whose worker does not answer, by age: tries again elsewhere, with more patience
// each time, and once a hop's attempts are used up gives its sequence up (HopCore::take_failed),
// which the engine then computes elsewhere or fails alone. Sans-I/O: told the time. Engine thread
// only.
#pragma once

#include <vector>

#include "base/clock.h"
#include "piggyback/core/hop_core.h"

namespace tandem::piggyback {

struct WatchdogOptions {
  // Patience with a hop's first attempt, waiting in a worker's queue included; doubled with each
  // further one. Far above what a busy host needs: a second attempt costs its bandwidth again.
  Nanos age = std::chrono::seconds(2);
};

class Watchdog {
 public:
  explicit Watchdog(const WatchdogOptions& options);

  // Gives up overdue attempts and returns how many. Appends every attempt whose worker should be
  // told to drop it: those just given up, and, with every call, those that hold up rows because
  // their sequence left or another attempt was faster. Worth a call a few times per `age`; looks at
  // all rows.
  [[nodiscard]] int64_t check(Nanos now, HopCore& core, std::vector<HopTask>& dropped);
  // Appends the attempts that did not answer although they were told to long ago: their workers
  // hang inside a kernel and are lost. To be called with check.
  void check_lost(Nanos now, HopCore& core, std::vector<HopTask>& lost) const;
  [[nodiscard]] Nanos age() const { return options_.age; }

 private:
  [[nodiscard]] Nanos last_patience(const HopCore& core) const;

  WatchdogOptions options_;
  std::vector<HopTask> overdue_;
};

}  // namespace tandem::piggyback
