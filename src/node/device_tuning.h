// Lets a device choose by measuring: runs a step of every range of rows, in which the device notes
// its work, and has it measure that work.
//
// One thread; nothing else may use the device meanwhile.
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/tuned_choice.h"
#include "device/tuning.h"
#include "latency/batch.h"
#include "latency/profiler.h"

namespace tandem {

// `time`: that a profile may take; tuning takes up to another third of that time. Larger steps than
// the first that takes too long are not run. `progress` may be empty.
Result<std::vector<TunedChoice>> tune_device(device::Tuning& tuning, latency::BatchMeter& meter,
                                             Nanos time, const latency::ProfileProgress& progress);

}  // namespace tandem
