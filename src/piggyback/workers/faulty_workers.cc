#include "piggyback/workers/faulty_workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <thread>
#include <utility>

namespace tandem::piggyback {
namespace {

constexpr uint64_t kThousand = 1000;

constexpr std::array<std::pair<std::string_view, int32_t WorkerFaults::*>, 6> kFaults = {
    {{"throw", &WorkerFaults::throws},
     {"late", &WorkerFaults::late},
     {"twice", &WorkerFaults::twice},
     {"outdated", &WorkerFaults::outdated},
     {"hang", &WorkerFaults::hangs},
     {"stuck", &WorkerFaults::stuck}}};

Status parse_fault(std::string_view item, WorkerFaults& faults) {
  const size_t colon = std::min(item.find(':'), item.size());
  const std::string_view name = item.substr(0, colon);
  const auto* fault = std::ranges::find(kFaults, name, &decltype(kFaults)::value_type::first);
  if (fault == kFaults.end()) {
    return invalid_argument(fmt::format(
        "faults: unknown fault \"{}\"; known are throw, late, twice, outdated, hang, stuck, hold",
        name.substr(0, 40)));
  }
  const std::string_view number = item.substr(std::min(colon + 1, item.size()));
  int32_t share = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), share);
  if (error != std::errc{} || end != number.data() + number.size() || share < 1 ||
      share > static_cast<int32_t>(kThousand)) {
    return invalid_argument(
        fmt::format("faults: {} needs how many of a thousand, e.g. {}:20", name, name));
  }
  if (faults.*(fault->second) != 0) {
    return invalid_argument(fmt::format("faults: {} is given twice", name));
  }
  faults.*(fault->second) = share;
  return {};
}

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

Result<WorkerFaults> parse_worker_faults(std::string_view text, uint64_t seed) {
  WorkerFaults faults{.seed = seed};
  while (!text.empty()) {
    const size_t plus = std::min(text.find('+'), text.size());
    RETURN_IF_ERROR(parse_fault(text.substr(0, plus), faults));
    text.remove_prefix(std::min(plus + 1, text.size()));
  }
  if (faults.total() > static_cast<int32_t>(kThousand)) {
    return invalid_argument(
        fmt::format("faults: {} of a thousand attempts are too many", faults.total()));
  }
  return faults;
}

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
