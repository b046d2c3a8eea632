// The world of virtual_world.h with the executor that serves, on a simulated accelerator and host
// (device/sim, sim/sim_host.h), under the wake-up rules of the engine's thread. No text is
// computed: tokens are numbers in turn. Steps take what the options' echo executor would take for
// them.
//
// What differs from the echo world: hops visit every layer and join steps through the policy's
// binder, in lanes where a plan asks for them; copies and hops take the same time each; no host
// fails.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/virtual_time.h"
#include "device/sim/sim_device.h"
#include "exec/forward_executor.h"
#include "model/weights.h"
#include "sim/engine_driver.h"
#include "support/virtual_world.h"

namespace tandem::testing {

class SimulatedWorld final {
 public:
  explicit SimulatedWorld(const WorldOptions& options);
  ~SimulatedWorld();
  SimulatedWorld(const SimulatedWorld&) = delete;
  SimulatedWorld& operator=(const SimulatedWorld&) = delete;

  // At `at`, a request arrives. Its sink is the world.
  void arrive(Nanos at, int64_t id, Request request);
  void cancel(Nanos at, int64_t id);
  void stop(Nanos at, int64_t id, int32_t choice);
  void run_until_idle();

  [[nodiscard]] const Outcome& outcome(int64_t id, int32_t choice = 0) {
    return sink_->of(id, choice);
  }
  [[nodiscard]] const Engine& engine() const { return driver_->engine(); }
  [[nodiscard]] int64_t preemptions() const { return observer_.preemptions; }
  [[nodiscard]] int64_t let_in() const { return observer_.let_in; }
  [[nodiscard]] int64_t straight() const { return observer_.straight; }
  [[nodiscard]] int64_t lane_moves() const { return observer_.lane_moves; }
  [[nodiscard]] int64_t mode_changes() const { return observer_.mode_changes; }
  [[nodiscard]] int64_t steps() const;
  [[nodiscard]] int64_t offloaded() const;  // tokens that began over KV on the host
  [[nodiscard]] int64_t transfers() const;
  [[nodiscard]] bool drained() const;  // no hop is in flight

 private:
  class Client;
  class CountingExecutor;
  void make_executor();

  const WorldOptions options_;
  VirtualTime time_;
  model::ModelConfig shape_;
  model::Weights weights_;
  std::unique_ptr<device::SimDevice> device_;
  latency::CorrectedModel step_times_;
  PolicyParts policy_;
  std::unique_ptr<Binder> binder_;  // null: there is one tier
  std::unique_ptr<sim::EngineDriver> driver_;
  std::unique_ptr<CountingExecutor> executor_;
  StepSums observer_;
  std::shared_ptr<Outcomes> sink_;
  std::unique_ptr<Client> client_;
};

}  // namespace tandem::testing
