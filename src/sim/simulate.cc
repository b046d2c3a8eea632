#include "sim/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "sim/engine_setup.h"
#include "sim/load_run.h"
#include "sim/simulated_engine.h"

namespace tandem::sim {
namespace {

constexpr int64_t kHappeningsBetweenProgress = 1 << 16;

// Everything of a run, in the order in which it is needed; it ends in the other one.
class Simulation {
 public:
  // `engines` must outlive it, and be without errors by check_engines.
  explicit Simulation(const std::vector<EngineSetup>& engines);

  Status plan();
  Status prepare();  // once planned
  SeveralSimulated run(const loadgen::Load& load, Nanos limit,
                       const std::function<void(const SimulateProgress&)>& progress);

 private:
  // An error of that engine, with its name if there are several.
  [[nodiscard]] Status named(size_t engine, const Status& status) const;
  LoadRun& begin(const loadgen::Load& load);

  const std::vector<EngineSetup>& setups_;
  std::vector<EngineTarget> targets_;
  std::vector<size_t> by_name_;  // numbers of engines; they begin in this order
  VirtualTime time_;
  std::map<size_t, std::unique_ptr<device::SharedBandwidth>> bandwidths_;  // by the host's engine
  std::optional<LoadRun> client_;
  std::vector<std::unique_ptr<SimulatedEngine>> engines_;
};

Simulation::Simulation(const std::vector<EngineSetup>& engines)
    : setups_(engines), targets_(targets_of(engines)), by_name_(engines.size()) {
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::ranges::sort(by_name_, {}, [&](size_t engine) { return engines[engine].name; });
  for (const EngineSetup& setup : engines) {
    if (!setup.shares_host.empty()) {
      bandwidths_[host_engine_of(setup, engines)] = nullptr;
    }
  }
  for (auto& [engine, bandwidth] : bandwidths_) {
    bandwidth = std::make_unique<device::SharedBandwidth>(time_);
  }
  for (const EngineSetup& setup : engines) {
    const auto shared = bandwidths_.find(host_engine_of(setup, engines));
    engines_.push_back(std::make_unique<SimulatedEngine>(
        setup.options, time_, shared == bandwidths_.end() ? nullptr : shared->second.get()));
  }
}

Status Simulation::named(size_t engine, const Status& status) const {
  if (status.ok() || setups_.size() == 1) {
    return status;
  }
  return about_engine(setups_, engine, status.error());
}

Status Simulation::plan() {
  for (const size_t engine : by_name_) {
    RETURN_IF_ERROR(named(engine, engines_[engine]->plan()));
  }
  return {};
}

Status Simulation::prepare() {
  for (const size_t engine : by_name_) {
    RETURN_IF_ERROR(named(engine, engines_[engine]->prepare()));
    if (engines_.size() > 1) {
      Result<EngineSpeed> speed = engines_[engine]->measure_speed();
      if (!speed.ok()) {
        return named(engine, speed.error());
      }
      targets_[engine].speed = *speed;
    }
    engines_[engine]->start();
  }
  return {};
}

LoadRun& Simulation::begin(const loadgen::Load& load) {
  std::vector<LoadRun::Target> targets(engines_.size());
  for (const size_t engine : by_name_) {
    engines_[engine]->begin();
    targets[engine] = {.driver = &engines_[engine]->driver(),
                       .vocabulary = setups_[engine].options.shape.vocabulary};
  }
  return client_.emplace(time_, std::move(targets), EngineChoice(targets_, load.groups), load);
}

SeveralSimulated Simulation::run(const loadgen::Load& load, Nanos limit,
                                 const std::function<void(const SimulateProgress&)>& progress) {
  LoadRun& client = begin(load);
  int64_t until_progress = 0;
  while (!client.over() && client.now() <= limit && time_.step()) {
    if (until_progress-- == 0 && progress) {
      until_progress = kHappeningsBetweenProgress;
      progress({.now = client.now(), .arrived = client.arrived(), .ended = client.ended()});
    }
  }
  if (progress) {
    progress({.now = client.now(), .arrived = client.arrived(), .ended = client.ended()});
  }
  const Nanos took = client.now();
  SeveralSimulated result{.run = client.take(), .engines = {}, .happenings = time_.steps()};
  for (size_t i = 0; i < engines_.size(); ++i) {
    EngineOutcome& outcome = result.engines.emplace_back(engines_[i]->finish(took));
    outcome.best_effort = best_effort_rates(
        load, result.run,
        engines_.size() > 1 ? std::optional(static_cast<int32_t>(i)) : std::nullopt);
  }
  return result;
}

std::vector<EngineSetup> sole(const SimulateOptions& options) {
  return {{.name = "", .options = options, .serves = std::nullopt, .shares_host = ""}};
}

}  // namespace

Status check(const SimulateOptions& options) { return check(sole(options)); }

Status check(const std::vector<EngineSetup>& engines) {
  RETURN_IF_ERROR(check_engines(engines));
  return Simulation(engines).plan();
}

Result<SeveralSimulated> simulate(const std::vector<EngineSetup>& engines, Nanos limit,
                                  const loadgen::Load& load,
                                  const std::function<void(const SimulateProgress&)>& progress) {
  RETURN_IF_ERROR(check_engines(engines));
  Simulation simulation(engines);
  RETURN_IF_ERROR(simulation.plan());
  RETURN_IF_ERROR(simulation.prepare());
  return simulation.run(load, limit, progress);
}

Result<Simulated> simulate(const SimulateOptions& options, const loadgen::Load& load,
                           const std::function<void(const SimulateProgress&)>& progress) {
  ASSIGN_OR_RETURN(SeveralSimulated simulated,
                   simulate(sole(options), options.limit, load, progress));
  return Simulated{std::move(simulated.engines.front()), std::move(simulated.run),
                   simulated.happenings};
}

}  // namespace tandem::sim
