// Which flags of a stream have an effect. A flag that was changed and has none would leave the
// reader of a measurement with a wrong idea of its load, so it is refused. One thread.
#pragma once

#include <vector>

#include "base/result.h"
#include "bench/load_flags.h"
#include "loadgen/load.h"

namespace tandem::bench {

// `streams` were made of `flags`, in the same order. Flags on the command line are defaults for all
// streams, so a flag is refused only if no stream that has it uses it.
Status check_load_flags(const std::vector<StreamFlags>& flags,
                        const std::vector<loadgen::LoadStream>& streams);

}  // namespace tandem::bench
