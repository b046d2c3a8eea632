// A step without lanes in which offloaded tokens join the stages for which they wait (APEX 3.3), as
// the model of time sees it. In a step each of them makes one hop, so it gets 1 / (layers + 1) of a
// token; where the host needs longer than the step for these hops, the others wait for it.
//
// Pure; any thread.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "latency/host_times.h"
#include "latency/step_shape.h"
#include "latency/step_time_model.h"
#include "scheduler/lanes_inequality.h"

namespace tandem {

// Those for which the host has not attended in time join a later step: each on its own, or only
// when all of their cohort are there (APEX 3.3), so that a step that the host misses is lost.
enum class OverlapJoin : uint8_t { kEach, kCohort };

struct OverlapStep {
  Nanos time{0};
  double tokens = 0;  // of output, that the offloaded sequences get on average
};

// `host`: null if the host's times are not known; it then keeps up.
OverlapStep overlap_step(const latency::StepTimeModel& model, const latency::HostTimes* host,
                         const latency::StepShape& residents, const HostRows& joining,
                         OverlapJoin join = OverlapJoin::kEach);

}  // namespace tandem
