// What an I/O thread does between two moments. Threads: any.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace tandem::api {

struct DeliveryCost {
  Nanos thread_time{0};    // processor time
  int64_t bytes_read = 0;  // of requests
};

}  // namespace tandem::api
