// The loads of `tandem tune`, and their runs on the simulated machine.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "scheduler/policy.h"
#include "sim/tune.h"
#include "simulate_flags.h"

namespace tandem {

// A policy option that is tuned, the range in which it is, and how it is printed.
struct Knob {
  const PolicyOption& option;
  int32_t min;
  int32_t max;
  std::string_view title;  // for the help
  std::string_view field;  // key of the option in the JSON file
  std::string (*show)(int32_t setting);
};

// `policy` has an option to tune.
const Knob& knob_of(std::string_view policy);

struct TuneLoad {
  std::string name;  // the point of `vary`; empty: the scenario has none
  PlannedRun run;
};

struct TuneLoads {
  std::vector<TuneLoad> loads;   // at least one; of one model
  nlohmann::ordered_json flags;  // the scenario's, of the first load
  int32_t jobs = 0;              // the scenario's option `jobs`; 0: not given
  // The scenario's value of the option that limits step budgets to best effort; absent: not given,
  // or the policy has no such option.
  std::optional<int32_t> flex_only;
  bool may_be_flex_only = false;  // whether the policy has that option
};

// Every point of the scenario's `vary` is a load; without it there is one. Starts the log, at the
// scenario's level if `log_level` is empty.
Result<TuneLoads> plan_tune_loads(const std::string& scenario, const std::string& policy,
                                  const std::string& log_level);

// Runs of the loads, `jobs` at a time, each in a thread of its own; jobs 0: one for each core that
// this process may use. To be used by one thread, in which `ran` is called after each batch of
// runs.
class TuneRunner {
 public:
  TuneRunner(const TuneLoads& loads, const Knob& knob, const std::vector<sim::TuneGoal>& goals,
             int32_t jobs, std::function<void(size_t runs)> ran);

  // Runs the latency-sensitive part of each load and measures its profile, which the runs with
  // settings use; so it is called first.
  Result<std::vector<sim::TuneRun>> without_best_effort();
  // Runs each load with each setting; results in the order of the settings. `flex_only`: value of
  // the option; absent: the policy has none. Errors name the point of `vary`.
  Result<std::vector<sim::SettingRuns>> with(const std::vector<int32_t>& settings,
                                             std::optional<int32_t> flex_only);
  // Effective configuration of the first load's run, one JSON object.
  [[nodiscard]] const std::string& config(int32_t setting, std::optional<int32_t> flex_only) const {
    return configs_.at({setting, flex_only});
  }

 private:
  struct Task {
    size_t load = 0;
    int32_t setting = 0;
    std::optional<int32_t> flex_only;
    bool online_only = false;
  };
  struct LoadRun {
    sim::TuneRun run;
    std::string config;
    std::string profile;  // text of the profile that the run measured; empty: it measured none
  };
  using Outcome = Result<std::optional<LoadRun>>;  // absent: the setting is too small

  [[nodiscard]] std::vector<Outcome> run(const std::vector<Task>& tasks) const;
  [[nodiscard]] Outcome run_one(const Task& task) const;
  // The error with the load's name in front, if there are several loads.
  [[nodiscard]] Error of_load(size_t load, Error error) const;

  const TuneLoads& loads_;
  const Knob& knob_;
  const std::vector<sim::TuneGoal>& goals_;
  size_t jobs_;
  std::function<void(size_t runs)> ran_;
  std::map<std::pair<int32_t, std::optional<int32_t>>, std::string> configs_;
  // By load: text of the profile that its run without best effort measured; empty: the policy needs
  // no step times.
  std::vector<std::string> profiles_;
};

}  // namespace tandem
