// How much work an I/O thread did between two points in time. Threads: any.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace tandem::api {

struct DeliveryCost {
  Nanos thread_time{0};    // processor time
  int64_t bytes_read = 0;  // request bytes
};

}  // namespace tandem::api
