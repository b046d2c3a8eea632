// --engine of `tandem simulate`: the engines of a run as "key=value;key=value" each.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command.h"
#include "sim/simulate.h"
#include "simulate_flags.h"

namespace tandem {

struct EngineFlags {
  std::string name;
  std::string serves = "all";
  std::string shares_host;
  SimulateFlags own;  // of the machine and the server
};

// The keys of an engine as flags.
void add_engine_flags(cli::Command app, EngineFlags& flags);

// One for each of `flags.engines`, whose keys stand over the other flags. Errors name the engine;
// their `param` is its number, as check_engines has it.
Result<std::vector<sim::EngineSetup>> plan_engines(const SimulateFlags& flags);

}  // namespace tandem
