// One run of a load on a simulated machine, or on several with an engine each, which share one
// virtual time: the planning, executor, engine and policies that serve, under devices in virtual
// time. The policy believes what a profile of the simulated machine says,
// which is measured in virtual time first. Each run on one thread, several side by side; the same
// result on every machine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "device/sim/sim_spec.h"
#include "latency/profile.h"
#include "loadgen/generator.h"
#include "loadgen/load.h"
#include "model/config.h"
#include "node/node_options.h"
#include "sim/engine_driver.h"
#include "sim/machine_log.h"
#include "sim/machine_report.h"
#include "sim/sim_host.h"

namespace tandem::sim {

// How far what is believed of the machine is from its truth.
struct BeliefError {
  double factor = 1;  // of every op's time, while the profile is measured
  double noise = 0;   // standard deviation of each op's time then, as a share of it
  double host = 1;    // of the time of the hosts' attention then
  uint64_t seed = 1;
};

struct SimulateOptions {
  device::SimSpec machine;  // its truth
  BeliefError beliefs;
  std::vector<SimHostSpec> hosts = {SimHostSpec{}};  // only with machine.host_memory_bytes
  EngineCosts engine;
  model::ModelConfig shape;
  NodeOptions node;                     // as of `tandem serve`
  Nanos limit{std::chrono::hours(24)};  // of virtual time; what is under way then is interrupted
};

struct SimulateProgress {
  Nanos now{0};  // since the load began
  int64_t arrived = 0;
  int64_t ended = 0;
};

// What an engine did.
struct EngineOutcome {
  std::string policy;
  std::string config;  // the server's effective configuration, one JSON object
  MachineLog machine;
  std::optional<BestEffortRates> best_effort;
  Nanos profiled{0};                        // virtual time that measuring the profile took
  std::optional<latency::Profile> profile;  // absent: no step times needed
  TierCounts tiers;                         // since the load began
  double compute_busy = 0;                  // share of the run that the compute stream worked
};

struct Simulated : EngineOutcome {
  loadgen::RunResult run;
  int64_t happenings = 0;  // of virtual time
};

// One of several engines.
struct EngineSetup {
  std::string name;
  SimulateOptions options;             // their limit does not count
  std::optional<ServiceClass> serves;  // of requests that name no engine; nullopt: every class
  // The engine whose host's bandwidth its ops on a host and its host attention draw on, too; empty:
  // it has its own.
  std::string shares_host;
};

struct SeveralSimulated {
  loadgen::RunResult run;  // the model of a record: the number of its engine
  std::vector<EngineOutcome> engines;
  int64_t happenings = 0;  // of virtual time
};

// Whether the machine holds the model and the policy has what it needs: what simulate would refuse
// before it begins.
Status check(const SimulateOptions& options);
// Also whether the engines go together. Errors of an engine name it.
Status check(const std::vector<EngineSetup>& engines);

Result<Simulated> simulate(const SimulateOptions& options, const loadgen::Load& load,
                           const std::function<void(const SimulateProgress&)>& progress);
// Engines work side by side from the first request on; their profiles are measured before that, one
// after the other. The order of the engines changes nothing. An engine takes each group of the
// load's (check_streams), and the load's models are as many as the engines.
Result<SeveralSimulated> simulate(const std::vector<EngineSetup>& engines, Nanos limit,
                                  const loadgen::Load& load,
                                  const std::function<void(const SimulateProgress&)>& progress);

}  // namespace tandem::sim
