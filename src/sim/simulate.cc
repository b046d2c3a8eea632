#include "sim/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "device/sim/sim_device.h"
#include "node/config_json.h"
#include "node/loaded_model.h"
#include "node/node_device.h"
#include "node/planned_model.h"
#include "node/policy_choice.h"
#include "node/scheduled_model.h"
#include "sim/load_run.h"
#include "sim/virtual_bell.h"
#include "workload/random.h"

namespace tandem::sim {
namespace {

constexpr int64_t kHappeningsBetweenProgress = 1 << 16;
constexpr double kLeastPace = 0.01;  // no noise makes a time negative

Nanos compute_time(const device::Device& device) {
  Nanos busy{0};
  for (const device::StreamStatistics& stream : device.statistics().streams) {
    busy += stream.kind == device::StreamKind::kCompute ? stream.busy : Nanos{0};
  }
  return busy;
}

// The sums of `now` without those of `before`.
TierCounts since(const TierCounts& before, TierCounts now) {
  now.visits -= before.visits;
  now.hops -= before.hops;
  now.doubted -= before.doubted;
  now.bytes_to_host -= before.bytes_to_host;
  now.bytes_from_host -= before.bytes_from_host;
  now.offloaded_bytes -= before.offloaded_bytes;
  now.onloaded_bytes -= before.onloaded_bytes;
  now.attended_bytes -= before.attended_bytes;
  now.attended_rows -= before.attended_rows;
  now.attention_time -= before.attention_time;
  now.returning_time -= before.returning_time;
  return now;
}

std::function<double()> pace_of(const BeliefError& error) {
  if (error.factor == 1 && error.noise == 0) {
    return {};
  }
  return [error, random = workload::Random(error.seed)]() mutable {
    return error.factor * std::max(kLeastPace, 1 + error.noise * random.normal());
  };
}

// Everything of a run, in the order in which it is needed; it ends in the other one.
class Simulation {
 public:
  explicit Simulation(const SimulateOptions& options) : options_(options), bell_(time_) {}

  Status plan();
  Status prepare();  // once planned
  Simulated run(const loadgen::Load& load,
                const std::function<void(const SimulateProgress&)>& progress);

 private:
  const SimulateOptions& options_;
  VirtualTime time_;
  VirtualBell bell_;
  NodeOptions node_;
  Nanos profiled_{0};
  BusySides sides_;
  MachineLog log_;
  // What time may still bring something to while the executor ends.
  std::optional<EngineDriver> driver_;
  std::optional<LoadRun> client_;
  std::unique_ptr<SoleModel> planned_;
  device::SimDevice* simulated_ = nullptr;  // the device of planned_
  SimHosts* hosts_ = nullptr;               // of loaded_; null with one tier
  ScheduledModel scheduled_;
  std::unique_ptr<LoadedModel> loaded_;
};

Status Simulation::plan() {
  node_ = options_.node;
  node_.memory_bytes = options_.machine.memory_bytes;
  node_.profile.cache_folder.clear();
  if (options_.machine.host_memory_bytes > 0) {
    node_.accelerator = device::AcceleratorSpec{.backend = "sim", .hollow = true};
    node_.host_memory_bytes = options_.machine.host_memory_bytes;
  }
  device::SimSpec machine = options_.machine;
  machine.vocabulary = options_.shape.vocabulary;
  model::ModelFolder folder;
  folder.config = options_.shape;
  auto device = std::make_unique<device::SimDevice>(time_, machine);
  simulated_ = device.get();
  simulated_->watch_compute([this](Nanos begin, Nanos end) { sides_.accelerator.add(begin, end); });
  ASSIGN_OR_RETURN(SoleModel planned,
                   plan_model(std::move(folder), NodeDevice::of(std::move(device)), node_, time_));
  planned_ = std::make_unique<SoleModel>(std::move(planned));
  return {};
}

Status Simulation::prepare() {
  if (options_.machine.host_memory_bytes > 0) {
    HostTierOptions& host = planned_->model.plan.executor.host;
    host.attention = [this](const piggyback::AttentionSpec& spec) {
      auto made = std::make_unique<SimHosts>(time_, options_.hosts, spec);
      made->set_pace(options_.beliefs.host);
      made->watch([this](Nanos begin, Nanos end) { sides_.host.add(begin, end); });
      hosts_ = made.get();
      return Result<std::unique_ptr<piggyback::AttentionHost>>(std::move(made));
    };
  }
  const PlannedModel& model = planned_->model;
  ASSIGN_OR_RETURN(loaded_, load_model(model, {}, [this] {
                     if (driver_.has_value()) {
                       driver_->completed();
                     } else {
                       bell_.ring();
                     }
                   }));
  const Nanos began = time_.now();
  simulated_->set_pace(pace_of(options_.beliefs));
  ASSIGN_OR_RETURN(scheduled_, complete_model(node_, model, *loaded_, bell_, time_, {}));
  simulated_->set_pace({});
  if (hosts_ != nullptr) {
    hosts_->set_pace(1);
  }
  profiled_ = time_.now() - began;
  driver_.emplace(time_, options_.engine,
                  EngineDriver::Bounds{.max_queue = node_.max_queue,
                                       .max_queue_flex = node_.max_queue_flex,
                                       .max_model_len = model.plan.max_model_len,
                                       .block_tokens = model.plan.block_tokens});
  driver_->start(
      engine_config(node_, model, scheduled_.profile.get()),
      {.executor = *loaded_->executor,
       .policy = *scheduled_.policy.step,
       .clock = time_,
       .observer = log_,
       .step_times = scheduled_.step_times.get(),
       .host_times = scheduled_.host_times.get(),
       .admission =
           node_.admission == AdmissionMode::kOn ? scheduled_.policy.admission.get() : nullptr});
  return {};
}

Simulated Simulation::run(const loadgen::Load& load,
                          const std::function<void(const SimulateProgress&)>& progress) {
  const device::Device& device = planned_->device->device();
  const Nanos worked = compute_time(device);
  const TierCounts before = loaded_->executor->tier_counts();
  log_.begin(time_, sides_, joins_in_cohorts(node_) ? "overlap" : "piggyback", before);
  LoadRun& client = client_.emplace(time_, *driver_, load, options_.shape.vocabulary);
  int64_t until_progress = 0;
  while (!client.over() && client.now() <= options_.limit && time_.step()) {
    if (until_progress-- == 0 && progress) {
      until_progress = kHappeningsBetweenProgress;
      progress({.now = client.now(), .arrived = client.arrived(), .ended = client.ended()});
    }
  }
  Simulated result;
  const Nanos took = client.now();
  result.run = client.take();
  result.best_effort = best_effort_rates(load, result.run);
  result.policy =
      node_.profile.error_percent == 0
          ? node_.policy
          : fmt::format("{}, time model {:+}%", node_.policy, node_.profile.error_percent);
  result.config = effective_config_json(node_, planned_->model);
  result.tiers = since(before, loaded_->executor->tier_counts());
  result.happenings = time_.steps();
  result.profiled = profiled_;
  if (scheduled_.profile != nullptr) {
    result.beliefs = scheduled_.profile->accuracy;
  }
  result.compute_busy =
      took > Nanos{0} ? to_seconds(compute_time(device) - worked) / to_seconds(took) : 0;
  log_.end();
  driver_->end();
  result.machine = std::move(log_);
  return result;
}

}  // namespace

Status check(const SimulateOptions& options) { return Simulation(options).plan(); }

Result<Simulated> simulate(const SimulateOptions& options, const loadgen::Load& load,
                           const std::function<void(const SimulateProgress&)>& progress) {
  Simulation simulation(options);
  RETURN_IF_ERROR(simulation.plan());
  RETURN_IF_ERROR(simulation.prepare());
  return simulation.run(load, progress);
}

}  // namespace tandem::sim
