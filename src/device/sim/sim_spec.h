// A simulated machine's truth: what its accelerators are and what they really take. Only the device
// knows it; schedulers believe what a profile of the machine says (docs/design/architecture.md).
// Plain data.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "device/emulated/cost_model.h"
#include "device/sim/op_table.h"

namespace tandem::device {

struct SimSpec {
  std::string name;  // "4 x a100"
  AcceleratorProfile accelerator;
  std::shared_ptr<const OpTable> measured;  // what ops take in place of the formulae; or null
  RankGroup group;                          // the accelerators that share one model
  int64_t memory_bytes = 0;                 // device memory of the whole group
  int64_t host_memory_bytes = 0;            // pinned; 0: there is one tier
  double link_bytes = 0;                    // per second and direction, of all links to the host
  Nanos link_latency{kLinkLatency};
  double slowdown = 1;  // ops take so many times what the accelerator, or `measured`, says
  // That the engine's thread takes to hand over one op, an event or a wait.
  Nanos launch{std::chrono::nanoseconds(1500)};
  int32_t vocabulary = 0;  // sampled tokens are below
};

}  // namespace tandem::device
