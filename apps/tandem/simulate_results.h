// What `tandem simulate` writes of a run, and how the run is described.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command.h"
#include "loadgen/run_info.h"
#include "loadgen/summary.h"
#include "sim/simulate.h"
#include "simulate_flags.h"

namespace tandem {

// The given options that say what is simulated: not the file they stand in, nor how it is run.
std::vector<cli::GivenOption> given_options(cli::Command command);

loadgen::RunInfo info_of(const SimulateFlags& flags, cli::Command command,
                         const device::SimSpec& machine, const sim::Simulated& result);

// Makes the folder, or says now what would otherwise be said after the run.
Status prepare_folder(const std::string& folder);

// result.json, summary.csv, machine.csv, report.html and plots/.
Status write_results(const std::string& out, const loadgen::RunInfo& info, const PlannedRun& run,
                     const sim::Simulated& result, const loadgen::Summary& summary);

}  // namespace tandem
