// The cpu back end: one tier in host memory, compute on a pool of threads, streams as threads that
// issue in order. A production back end, not a stand-in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/result.h"
#include "device/cpu/kernel_choice.h"
#include "device/cpu/topology.h"
#include "device/device.h"
#include "kernels/kernels.h"

namespace tandem::device {

class OpListener;
class PagePlacer;

enum class Pinning : uint8_t {
  kAuto,  // pin from 8 threads on: on a small shared machine a pinned worker is stuck beside its
          // neighbour, on a large one it keeps its caches
  kOff,
  kOn,
};

struct CpuDeviceOptions {
  int32_t threads = 0;  // compute threads; 0: one for each core that affinity, nodes and cgroup
                        // quota allow
  std::optional<kernels::Choice> isa = {};  // absent: chosen by measuring `products`, if there are
                                            // some, else the best that this machine has
  std::optional<ProductShape> products = {};
  Pinning pinning = Pinning::kAuto;
  OpListener* op_times = nullptr;  // when set it is told each op's time; must outlive the device
  // Memory nodes to compute on. With several, each thread keeps to one of them and weights and KV
  // are placed (seats.h, placement.h); with one, nothing is.
  NumaChoice numa = {};
  std::optional<Topology> topology = {};  // absent: this machine's
  const PagePlacer* placer = nullptr;     // null: the kernel
};

// Compute threads where no number is asked for: one for each core, as far as the cgroups let it.
int32_t usual_threads(std::span<const MemoryNode> nodes);

// Errors: a thread count, node or ISA that this machine does not have, naming what it has.
Result<std::unique_ptr<Device>> make_cpu_device(const CpuDeviceOptions& options);

}  // namespace tandem::device
