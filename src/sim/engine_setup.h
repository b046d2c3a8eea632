// Whether the engines of a simulation go together, and with the streams of its load. Errors say
// what to change; their `param` is "engine#2" or "stream#1", the number in the list, by which
// located() finds the line. Threads: any.
#pragma once

#include <vector>

#include "loadgen/load.h"
#include "sim/engine_choice.h"
#include "sim/simulate.h"

namespace tandem::sim {

// Whether ops draw on the bandwidth of a host's memory.
bool computes_on_host(const device::SimSpec& machine);

// Names, and hosts that are shared. At least one engine; the only one needs no name.
Status check_engines(const std::vector<EngineSetup>& engines);
// Whether each stream has engines that take its requests.
Status check_streams(const std::vector<loadgen::LoadStream>& streams,
                     const std::vector<EngineSetup>& engines);

std::vector<EngineTarget> targets_of(const std::vector<EngineSetup>& engines);
// The number of the engine that the host belongs to: itself, or that of shares_host. `engine` is
// one of `engines`, which check_engines has passed.
size_t host_engine_of(const EngineSetup& engine, const std::vector<EngineSetup>& engines);
// The error with the engine's name in front.
Error about_engine(const std::vector<EngineSetup>& engines, size_t engine, const Error& error);

}  // namespace tandem::sim
