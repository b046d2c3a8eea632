// Faults that are planted into a run over two tiers on purpose, to see that a server stands them:
// plain data of `--emulate-accelerator faults=...`. A run with any of them says so in the device's
// name.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace tandem::device {

struct PlantedFaults {
  // Attempts of host workers, of a thousand: see piggyback/workers/faulty_workers.h.
  int32_t throws = 0;
  int32_t late = 0;
  int32_t twice = 0;
  int32_t outdated = 0;
  int32_t hangs = 0;
  int32_t stuck = 0;
  // Copies between the tiers that are held back, of a thousand, for up to kLongestHold.
  int32_t held = 0;
  uint64_t seed = 1;

  [[nodiscard]] int32_t of_workers() const {
    return throws + late + twice + outdated + hangs + stuck;
  }
  [[nodiscard]] bool any() const { return of_workers() + held > 0; }
};

inline constexpr Nanos kLongestHold = std::chrono::milliseconds(50);

}  // namespace tandem::device
