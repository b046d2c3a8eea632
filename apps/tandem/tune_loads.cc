#include "tune_loads.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "base/units.h"
#include "bench/command_flags.h"
#include "node/time_profile.h"
#include "scenario_run.h"
#include "scheduler/policies/hygen.h"
#include "scheduler/policies/registry.h"
#include "sim/scenario.h"
#include "sim/simulate.h"
#include "sweep_run.h"

namespace tandem {
namespace {

// Options that tune sets itself: a scenario cannot vary them.
constexpr std::array<std::string_view, 13> kOfTune = {"policy",
                                                      "step-budget",
                                                      "fixed-step-budget",
                                                      "hygen-step-budget",
                                                      "step-budget-flex-only",
                                                      "hold-mean-tbt",
                                                      "hold-p99-tbt",
                                                      "hold-mean-ttft",
                                                      "hold-p99-ttft",
                                                      "flex-rate",
                                                      "log-level",
                                                      "out",
                                                      "jobs"};

Status check_varied(const sim::Scenario& scenario) {
  for (const sim::VariedKey& varied : scenario.vary) {
    if (std::ranges::find(kOfTune, varied.option) != kOfTune.end()) {
      return invalid_argument(
          fmt::format("{}:{}: tune does not vary '{}': vary what loads differ in, such as "
                      "load-seed or the trace-start of a stream",
                      scenario.file, varied.line, varied.key),
          "scenario");
    }
  }
  return {};
}

Status check_load(const TuneLoad& load, const TuneLoads& before) {
  if (!load.run.engines.empty()) {
    return invalid_argument(
        "tune needs one engine: leave `engine` out, and give its options as keys of the scenario",
        "engine");
  }
  if (sim::online_part(load.run.load).requests.size() == load.run.load.requests.size()) {
    return invalid_argument(
        "no stream is best effort, so no budget makes a difference; give one the key "
        "service-tier: flex",
        "stream");
  }
  if (!before.loads.empty() && shape_digest(before.loads.front().run.options.shape) !=
                                   shape_digest(load.run.options.shape)) {
    return invalid_argument(
        "another model than that of the first point; what is found belongs to one model", "shape");
  }
  return {};
}

Status add_load(TuneLoads& loads, const std::string& name, const cli::ConfigNode& options,
                const std::string& scenario, const std::string& policy,
                const std::string& log_level) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ReadRun> read, read_run(options, scenario));
  read->flags.serve.node.policy = policy;
  read->flags.serve.step_budget.clear();  // tune looks for it
  read->flags.serve.fixed_step_budget = false;
  const bool first = loads.loads.empty();
  if (first) {
    RETURN_IF_ERROR(log::start(log_level.empty() ? read->flags.serve.log_level : log_level));
  }
  Result<PlannedRun> planned = plan_run(read->flags);
  if (!planned.ok()) {
    return planned.error();
  }
  TuneLoad load{.name = name, .run = *std::move(planned)};
  RETURN_IF_ERROR(check_load(load, loads));
  if (first) {
    loads.flags = bench::flags_json(read->command);
    loads.jobs = read->flags.jobs;
    loads.may_be_flex_only = reads_option(policy, kStepBudgetFlexOnly);
    for (const cli::GivenOption& option : read->command.values()) {
      if (option.name == kStepBudgetFlexOnly.name && !option.given.empty() &&
          loads.may_be_flex_only) {
        loads.flex_only = load.run.options.node.policy_options[kStepBudgetFlexOnly];
      }
    }
  }
  loads.loads.push_back(std::move(load));
  return {};
}

}  // namespace

const Knob& knob_of(std::string_view policy) {
  static const Knob budget{.option = kHyGenStepBudget,
                           .min = 1'000,
                           .max = 2'000'000,
                           .title = "its step budget",
                           .field = "step_budget_us",
                           .show = [](int32_t micros) {
                             return fmt::format("a step budget of {}",
                                                format_duration(std::chrono::microseconds(micros)));
                           }};
  static const Knob rate{.option = kFlexRate,
                         .min = 10,
                         .max = 100'000,
                         .title = "the rate of its best-effort requests",
                         .field = "flex_rate",
                         .show = [](int32_t thousandths) {
                           return fmt::format("{:g} best-effort requests/s", thousandths / 1000.0);
                         }};
  const PolicyOption* tuned = policy_traits(policy).tuned;
  CHECK(tuned == &budget.option || tuned == &rate.option, "{} has nothing to tune", policy);
  return tuned == &budget.option ? budget : rate;
}

Result<TuneLoads> plan_tune_loads(const std::string& scenario, const std::string& policy,
                                  const std::string& log_level) {
  SimulateFlags flags;
  cli::CommandLine line("", "tandem");
  const KnownKeys known(add_simulate_flags(line.root(), flags));
  const sim::ScenarioKeys& keys = known.keys();
  ASSIGN_OR_RETURN(const sim::Scenario read, sim::read_scenario(scenario, keys));
  RETURN_IF_ERROR(check_varied(read));
  ASSIGN_OR_RETURN(const std::vector<sim::SweepPoint> points, sim::points_of(read));
  TuneLoads loads;
  for (size_t i = 0; i < std::max<size_t>(points.size(), 1); ++i) {
    const sim::SweepPoint* point = points.empty() ? nullptr : &points[i];
    const Status added =
        add_load(loads, point == nullptr ? "" : point->name,
                 point == nullptr ? read.options : sim::point_options(read, *point, keys), scenario,
                 policy, log_level);
    if (!added.ok()) {
      return sim::located(added.error(), read, point, keys);
    }
  }
  return loads;
}

TuneRunner::TuneRunner(const TuneLoads& loads, const Knob& knob,
                       const std::vector<sim::TuneGoal>& goals, int32_t jobs,
                       std::function<void(size_t runs)> ran)
    : loads_(loads),
      knob_(knob),
      goals_(goals),
      jobs_(static_cast<size_t>(jobs > 0 ? jobs : usable_cores())),
      ran_(std::move(ran)),
      profiles_(loads.loads.size()) {}

TuneRunner::Outcome TuneRunner::run_one(const Task& task) const {
  const PlannedRun& planned = loads_.loads[task.load].run;
  sim::SimulateOptions options = planned.options;
  PolicyOptions& values = options.node.policy_options;
  values[knob_.option] = task.setting;
  if (task.flex_only.has_value()) {
    values[kStepBudgetFlexOnly] = *task.flex_only;
  }
  for (const PolicyOption* goal : {&kHoldMeanTbt, &kHoldP99Tbt, &kHoldMeanTtft, &kHoldP99Ttft}) {
    values[*goal] = 0;  // the budget under test stays
  }
  options.node.profile.text = profiles_[task.load];
  const loadgen::Load load = task.online_only ? sim::online_part(planned.load) : planned.load;
  const Result<sim::Simulated> simulated =
      sim::simulate(options, load, [](const sim::SimulateProgress&) {});
  if (!simulated.ok()) {
    if (simulated.error().param == knob_.option.name) {
      return std::optional<LoadRun>();
    }
    return simulated.error();
  }
  ASSIGN_OR_RETURN(sim::TuneRun run,
                   sim::measure_run(load, simulated->run.records, simulated->run.duration, goals_));
  LoadRun result{.run = std::move(run), .config = simulated->config};
  if (task.online_only && simulated->profile.has_value()) {
    result.profile = latency::profile_text(*simulated->profile);
  }
  return std::optional(std::move(result));
}

std::vector<TuneRunner::Outcome> TuneRunner::run(const std::vector<Task>& tasks) const {
  std::vector<std::optional<Outcome>> outcomes(tasks.size());
  std::atomic<size_t> next{0};
  {
    std::vector<std::jthread> workers;
    for (size_t i = 0; i < std::min(jobs_, tasks.size()); ++i) {
      workers.emplace_back([&] {
        for (size_t at = next++; at < tasks.size(); at = next++) {
          outcomes[at] = run_one(tasks[at]);
        }
      });
    }
  }
  std::vector<Outcome> all;
  for (std::optional<Outcome>& outcome : outcomes) {
    all.push_back(*std::move(outcome));
  }
  return all;
}

Error TuneRunner::of_load(size_t load, Error error) const {
  if (const std::string& name = loads_.loads[load].name; !name.empty()) {
    error.message = fmt::format("in the point {}: {}", name, error.message);
  }
  return error;
}

Result<std::vector<sim::TuneRun>> TuneRunner::without_best_effort() {
  std::vector<Task> tasks;
  for (size_t load = 0; load < loads_.loads.size(); ++load) {
    tasks.push_back({.load = load, .setting = knob_.max, .flex_only = {}, .online_only = true});
  }
  std::vector<sim::TuneRun> runs;
  for (Outcome& outcome : run(tasks)) {
    if (!outcome.ok()) {
      return of_load(runs.size(), outcome.error());
    }
    if (!outcome->has_value()) {
      return invalid_argument("a decode of this model takes longer than the largest step budget",
                              "scenario");
    }
    profiles_[runs.size()] = std::move((**outcome).profile);
    runs.push_back(std::move((**outcome).run));
  }
  ran_(tasks.size());
  return runs;
}

Result<std::vector<sim::SettingRuns>> TuneRunner::with(const std::vector<int32_t>& settings,
                                                       std::optional<int32_t> flex_only) {
  const size_t loads = loads_.loads.size();
  std::vector<Task> tasks;
  for (const int32_t setting : settings) {
    for (size_t load = 0; load < loads; ++load) {
      tasks.push_back({.load = load, .setting = setting, .flex_only = flex_only});
    }
  }
  std::vector<Outcome> outcomes = run(tasks);
  std::vector<sim::SettingRuns> all;
  for (size_t i = 0; i < settings.size(); ++i) {
    sim::SettingRuns& runs = all.emplace_back(std::in_place);
    for (size_t load = 0; load < loads; ++load) {
      Outcome& outcome = outcomes[(i * loads) + load];
      if (!outcome.ok()) {
        return of_load(load, outcome.error());
      }
      if (!outcome->has_value()) {
        runs.reset();
      }
      if (runs.has_value()) {
        runs->push_back((**outcome).run);
      }
      if (load == 0 && outcome->has_value()) {
        configs_[{settings[i], flex_only}] = std::move((**outcome).config);
      }
    }
  }
  ran_(tasks.size());
  return all;
}

}  // namespace tandem
