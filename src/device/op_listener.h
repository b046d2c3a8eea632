// Who is told what each op of a device took. Off unless asked for.
#pragma once

#include "base/clock.h"
#include "device/ops.h"

namespace tandem::device {

// Called by the threads of streams, of several at once.
class OpListener {
 public:
  virtual ~OpListener() = default;
  virtual void add(const Op& op, Nanos time) = 0;
};

}  // namespace tandem::device
