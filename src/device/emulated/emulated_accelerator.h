// An accelerator with memory of its own, played by some of this machine's cores: two bounded arenas
// (device and pinned host memory) with real copies between them, compute streams on a pool of
// pinned threads, copy streams with a thread each, and cores left over for the host that none of
// these run on. So everything that must hold between two tiers can be tried without a GPU.
//
// It is stricter than a GPU: an op that touches anything but device memory, a copy that goes the
// wrong way for its stream, and a compute stream that would wait for another all stop the process;
// memory that is given back reads as NaN.
//
// Where the spec asks for a pace, no event completes earlier than on the accelerator that is played
// (cost_model.h); `hollow`, dense ops and resident attention only take their time. caps().name says
// so, and every result of such a run must.
//
// Threads: as device.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "device/cpu/kernel_choice.h"
#include "device/device.h"
#include "device/emulated/emulation_spec.h"
#include "observe/timeline.h"

namespace tandem::device {

struct EmulatedAcceleratorOptions {
  EmulationSpec spec;
  int64_t device_memory_bytes = 0;          // bound of MemoryKind::kDevice
  int64_t host_memory_bytes = 0;            // bound of MemoryKind::kHostPinned
  std::optional<kernels::Choice> isa = {};  // absent: chosen by measuring `products`, if there are
                                            // some, else the best that this machine has
  std::optional<ProductShape> products = {};
  // Gets a track for each stream, with a span for each op: when it ran or, where paced, when it
  // would have run. Outlives the device; null: nothing is recorded.
  observe::Timeline* timeline = nullptr;
};

class EmulatedAccelerator : public Device {
 public:
  // Compute streams may wait for `event` although it may not be complete: a rule of joining that
  // wants the accelerator to stand still says so, event by event. Before the wait().
  virtual void allow_wait(EventId event) = 0;
};

// Errors: cores or an ISA that this machine does not have, memory it has not free.
Result<std::unique_ptr<EmulatedAccelerator>> make_emulated_accelerator(
    const EmulatedAcceleratorOptions& options);

}  // namespace tandem::device
