// A run of `tandem simulate` with several engines: its tables and files.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/command.h"
#include "simulate_flags.h"

namespace tandem {

// Simulates `run.engines`, prints tables and, unless `out` is empty, writes the files of a run of
// one engine into that folder, with a machine-NAME.csv for each engine.
Status run_engines(const SimulateFlags& flags, cli::Command command, const PlannedRun& run,
                   const std::string& out);

}  // namespace tandem
