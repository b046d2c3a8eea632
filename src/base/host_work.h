// What the CPUs did for sequences whose attention they compute.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace tandem {

struct HostWork {
  Nanos busy{0};        // that each worker was at work, in the mean
  int64_t rows = 0;     // of one layer, attended for
  int64_t context = 0;  // tokens that these attended to

  friend bool operator==(const HostWork&, const HostWork&) = default;
};

}  // namespace tandem
