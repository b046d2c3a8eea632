// The flags of `tandem simulate`, and what they ask for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/load_flags.h"
#include "cli/command.h"
#include "loadgen/load.h"
#include "serve_flags.h"
#include "sim/simulate.h"

namespace tandem {

struct SimulateFlags {
  SimulateFlags() { serve.log_level = "warning"; }

  std::string scenario;
  ServeFlags serve;
  bench::StreamFlags stream;
  std::vector<std::string> streams;
  std::vector<std::string> engines;
  std::string shape = "8B";
  std::string accelerator = "a100";
  std::string op_times;
  int32_t accelerators = 1;
  std::string accelerator_memory;
  double memory_share = 0.9;
  double accelerator_tflops = 0;  // 0: what the type has
  double accelerator_gbps = 0;
  double slowdown = 1;
  std::string host_kv;
  std::vector<std::string> hosts;
  double host_gbps = 150;
  int32_t host_workers = 32;
  double link_gbps = 0;
  double host_band = 0;  // 0: none
  sim::BeliefError beliefs;
  std::string limit = "1440min";
  uint64_t load_seed = 1;
  std::string out;
  int32_t jobs = 0;  // 0: as many as there are cores
};

// All flags of the command, which is returned. `flags` outlives the parse.
cli::Command add_simulate_flags(cli::Command app, SimulateFlags& flags);
// The flags of a machine and of the server on it.
void add_machine_flags(cli::Command app, SimulateFlags& flags);

struct PlannedRun {
  sim::SimulateOptions options;  // of the only engine
  loadgen::Load load;
  std::vector<sim::EngineSetup> engines;  // not empty: of --engine, in place of `options`
};

// The flags of the server, without the options that change nothing on a simulated machine: such an
// option is refused, and the error names the right one.
void add_simulated_node_flags(cli::Command app, ServeFlags& flags);

// Checks what the flags say together, and makes the load. Errors name the flag. Simulates nothing.
Result<PlannedRun> plan_run(SimulateFlags& flags);
// The same of the machine and the server alone.
Result<sim::SimulateOptions> plan_engine(SimulateFlags& flags);

}  // namespace tandem
