// The cpu back end: one tier in host memory, compute on a pool of threads, streams as threads that
// issue in order. A production back end, not a stand-in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.h"
#include "device/device.h"
#include "kernels/kernels.h"

namespace tandem::device {

class OpTimes;

enum class Pinning : uint8_t {
  kAuto,  // pin from 8 threads on: on a small shared machine a pinned worker is stuck beside its
          // neighbour, on a large one it keeps its caches
  kOff,
  kOn,
};

struct CpuDeviceOptions {
  int32_t threads = 0;  // compute threads; 0: all that affinity and cgroup quota allow
  std::optional<kernels::Isa> isa = {};  // absent: the best that this machine has
  Pinning pinning = Pinning::kAuto;
  OpTimes* op_times = nullptr;  // when set every op is timed; must outlive the device
};

// Errors: a thread count or ISA that this machine does not have, naming what it has.
Result<std::unique_ptr<Device>> make_cpu_device(const CpuDeviceOptions& options);

}  // namespace tandem::device
