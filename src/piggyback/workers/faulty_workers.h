// Workers that fail on purpose, for drills and tests of the whole server: throw, answer late, twice
// or with an answer from before, hang before they touch anything, or get stuck inside a kernel for
// ever. Which task it hits is a matter of its name and the seed, not of time or threads. Any
// thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "piggyback/workers/worker_hook.h"

namespace tandem::piggyback {

// How many attempts of a thousand; each attempt has at most one fault.
struct WorkerFaults {
  int32_t throws = 0;
  int32_t late = 0;  // by up to late_by
  int32_t twice = 0;
  int32_t outdated = 0;
  int32_t hangs = 0;  // the worker never comes back, but has touched nothing
  int32_t stuck = 0;  // the same inside a kernel: it might still write
  Nanos late_by{0};   // 0: the owner chooses
  uint64_t seed = 1;

  [[nodiscard]] int32_t total() const { return throws + late + twice + outdated + hangs + stuck; }
};

// "throw:20+stuck:1": so many of a thousand attempts each; empty: none. An error says which part is
// wrong.
Result<WorkerFaults> parse_worker_faults(std::string_view text, uint64_t seed);

class FaultyWorkers final : public WorkerHook {
 public:
  explicit FaultyWorkers(const WorkerFaults& faults) : faults_(faults) {}
  WorkerAct at(WorkerPoint point, const HopTask& task, int32_t worker) override;

 private:
  enum class Fault : uint8_t { kNone, kThrows, kLate, kTwice, kOutdated, kHangs, kStuck };
  [[nodiscard]] Fault fault_of(uint64_t number) const;

  const WorkerFaults faults_;
};

}  // namespace tandem::piggyback
