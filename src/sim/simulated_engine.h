// One engine of a simulation with all that it runs on: the simulated machine, the model as the
// server plans it, the profile, the policy and the log. One thread.
#pragma once

#include <memory>
#include <optional>

#include "base/virtual_time.h"
#include "device/sim/shared_bandwidth.h"
#include "device/sim/sim_device.h"
#include "node/loaded_model.h"
#include "node/planned_model.h"
#include "node/scheduled_model.h"
#include "sim/engine_choice.h"
#include "sim/simulate.h"
#include "sim/virtual_bell.h"

namespace tandem::sim {

class SimulatedEngine {
 public:
  // All must outlive it. `bandwidth`: of a host that it shares with other engines; null: none.
  SimulatedEngine(const SimulateOptions& options, VirtualTime& time,
                  device::SharedBandwidth* bandwidth)
      : options_(options), time_(time), bell_(time), bandwidth_(bandwidth) {}
  SimulatedEngine(const SimulatedEngine&) = delete;
  SimulatedEngine& operator=(const SimulatedEngine&) = delete;

  Status plan();
  // Loads the model and measures the profile. Once planned; no other engine works meanwhile.
  Status prepare();
  // Measures what a router believes of the engine. Once prepared, as prepare().
  Result<EngineSpeed> measure_speed();
  // The engine takes requests. Once prepared and measured.
  void start();
  // What happens from now on counts.
  void begin();
  // Nothing more counts. `took`: since begin(). `best_effort` is left out.
  EngineOutcome finish(Nanos took);
  [[nodiscard]] EngineDriver& driver() { return *driver_; }

 private:
  const SimulateOptions& options_;
  VirtualTime& time_;
  VirtualBell bell_;
  device::SharedBandwidth* bandwidth_;
  NodeOptions node_;
  Nanos profiled_{0};
  BusySides sides_;
  MachineLog log_;
  TierCounts counted_;  // until begin()
  // What time may still bring something to while the executor ends.
  std::optional<EngineDriver> driver_;
  std::unique_ptr<SoleModel> planned_;
  device::SimDevice* simulated_ = nullptr;  // the device of planned_
  SimHosts* hosts_ = nullptr;               // of loaded_; null with one tier
  ScheduledModel scheduled_;
  std::unique_ptr<LoadedModel> loaded_;
};

}  // namespace tandem::sim
