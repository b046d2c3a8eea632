#include "piggyback/workers/faulty_workers.h"

#include <array>
#include <thread>
#include <utility>

namespace tandem::piggyback {
namespace {

constexpr uint64_t kThousand = 1000;

// splitmix64 over what names an attempt.
uint64_t number_of(const HopTask& task, uint64_t seed) {
  uint64_t number = seed;
  for (const uint64_t part :
       {static_cast<uint64_t>(task.hop.slot), uint64_t{task.hop.generation},
        static_cast<uint64_t>(task.attempt), static_cast<uint64_t>(task.layer),
        static_cast<uint64_t>(task.position)}) {
    number += part + 0x9e3779b97f4a7c15ULL;
    number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9ULL;
    number = (number ^ (number >> 27)) * 0x94d049bb133111ebULL;
    number ^= number >> 31;
  }
  return number;
}

[[noreturn]] void hang_for_ever() {
  while (true) {
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

}  // namespace

FaultyWorkers::Fault FaultyWorkers::fault_of(uint64_t number) const {
  const std::array<std::pair<Fault, int32_t>, 6> shares = {{{Fault::kThrows, faults_.throws},
                                                            {Fault::kLate, faults_.late},
                                                            {Fault::kTwice, faults_.twice},
                                                            {Fault::kOutdated, faults_.outdated},
                                                            {Fault::kHangs, faults_.hangs},
                                                            {Fault::kStuck, faults_.stuck}}};
  auto left = static_cast<int64_t>(number % kThousand);
  for (const auto& [fault, share] : shares) {
    left -= share;
    if (left < 0) {
      return fault;
    }
  }
  return Fault::kNone;
}

WorkerAct FaultyWorkers::at(WorkerPoint point, const HopTask& task, int32_t) {
  const uint64_t number = number_of(task, faults_.seed);
  switch (fault_of(number)) {
    case Fault::kNone:
      break;
    case Fault::kThrows:
      return point == WorkerPoint::kAttend ? WorkerAct::kThrow : WorkerAct::kGoOn;
    case Fault::kLate:
      // Half of them inside a kernel, where nobody can take the task back.
      if (point == (number / kThousand % 2 == 0 ? WorkerPoint::kAnswer : WorkerPoint::kKernel) &&
          faults_.late_by > Nanos{0}) {
        std::this_thread::sleep_for(Nanos{static_cast<int64_t>(
            number / kThousand % static_cast<uint64_t>(faults_.late_by.count()))});
      }
      break;
    case Fault::kTwice:
      return point == WorkerPoint::kAnswer ? WorkerAct::kAnswerTwice : WorkerAct::kGoOn;
    case Fault::kOutdated:
      return point == WorkerPoint::kAnswer ? WorkerAct::kAnswerOutdated : WorkerAct::kGoOn;
    case Fault::kHangs:
      if (point == WorkerPoint::kAppend) {
        hang_for_ever();
      }
      break;
    case Fault::kStuck:
      if (point == WorkerPoint::kKernel) {
        hang_for_ever();
      }
      break;
  }
  return WorkerAct::kGoOn;
}

}  // namespace tandem::piggyback
