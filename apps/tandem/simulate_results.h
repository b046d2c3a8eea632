// What `tandem simulate` writes of a run, and how the run is described.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command.h"
#include "loadgen/headline.h"
#include "loadgen/run_info.h"
#include "loadgen/summary.h"
#include "sim/host_band.h"
#include "sim/simulate.h"
#include "simulate_flags.h"

namespace tandem {

// The given options that say what is simulated: not the file they stand in, nor how it is run.
std::vector<cli::GivenOption> given_options(cli::Command command);

// Of every run: without what was simulated.
loadgen::RunInfo run_info(const SimulateFlags& flags, cli::Command command);
// An engine's machine and its work.
nlohmann::ordered_json machine_json_of(const sim::SimulateOptions& options,
                                       const sim::EngineOutcome& result);
loadgen::RunInfo info_of(const SimulateFlags& flags, cli::Command command,
                         const sim::SimulateOptions& options, const sim::Simulated& result);

// Makes the folder, or says now what would otherwise be said after the run.
Status prepare_folder(const std::string& folder);

// The numbers that runs are compared by.
std::vector<loadgen::Headline> headlines_of(const loadgen::Summary& summary,
                                            const sim::SimulateOptions& options,
                                            const sim::Simulated& result);

// The numbers of an engine and its machine alone.
std::vector<loadgen::Headline> machine_headlines(const sim::SimulateOptions& options,
                                                 const sim::EngineOutcome& result);

// A finished run: what was planned, what happened, and the runs with other host bandwidths.
struct RunOutcome {
  const PlannedRun& run;
  const sim::Simulated& result;
  const loadgen::Summary& summary;
  sim::HostBand band = {};
};
// Writes result.json, summary.csv, machine.csv, report.html, plots/ and, with a band, band.csv.
Status write_results(const std::string& out, const loadgen::RunInfo& info,
                     const RunOutcome& outcome);

}  // namespace tandem
