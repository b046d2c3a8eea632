// `tandem tune`: the step budget of the policy hygen, or the rate of its baseline hygen_star, that
// keeps a metric of latency-sensitive requests within a tolerance, found on the simulated machine
// (HyGen 4.2).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/units.h"
#include "bench/command_flags.h"
#include "bench/load_flags.h"
#include "cli/option_flags.h"
#include "commands.h"
#include "engine_flags.h"
#include "loadgen/result_json.h"
#include "node/time_profile.h"
#include "progress.h"
#include "scenario_run.h"
#include "scheduler/policies/hygen.h"
#include "scheduler/policies/registry.h"
#include "shared_options.h"
#include "sim/scenario.h"
#include "sim/simulate.h"
#include "sim/tune.h"

namespace tandem {
namespace {

struct TuneFlags {
  std::string scenario;
  std::vector<std::string> metrics = {"p99_tbt"};
  std::vector<double> tolerance_percents = {5};  // one, or one for each metric
  std::string policy{kHyGen.name};
  std::string out;
  std::string log_level;  // empty: the scenario's
};

// A policy option that is bisected, the range in which it is, and how it is told.
struct Knob {
  const PolicyOption& option;
  int32_t least;
  int32_t most;
  std::string_view title;  // for the help
  std::string_view field;  // key of the option in the JSON file
  std::string (*show)(int32_t setting);
};

// `policy` has an option to tune.
const Knob& knob_of(std::string_view policy) {
  static const Knob budget{.option = kHyGenStepBudget,
                           .least = 1'000,
                           .most = 2'000'000,
                           .title = "its step budget",
                           .field = "step_budget_us",
                           .show = [](int32_t micros) {
                             return fmt::format("a step budget of {}",
                                                format_duration(std::chrono::microseconds(micros)));
                           }};
  static const Knob rate{.option = kFlexRate,
                         .least = 10,
                         .most = 100'000,
                         .title = "the rate of its best-effort requests",
                         .field = "flex_rate",
                         .show = [](int32_t thousandths) {
                           return fmt::format("{:g} best-effort requests/s", thousandths / 1000.0);
                         }};
  const PolicyOption* tuned = policy_traits(policy).tuned;
  CHECK(tuned == &budget.option || tuned == &rate.option, "{} has nothing to tune", policy);
  return tuned == &budget.option ? budget : rate;
}

// What is tuned, and the flags of the scenario that it was made of.
struct TunedLoad {
  PlannedRun run;
  nlohmann::ordered_json flags;
};

// A scenario without `vary`, as a run of the policy.
Result<TunedLoad> plan_tuned(const TuneFlags& flags) {
  SimulateFlags known;
  cli::CommandLine known_line("", "tandem");
  cli::CommandLine stream_line("", "tandem");
  bench::StreamFlags stream;
  stream.of_simulation = true;
  bench::add_stream_flags(stream_line.root(), stream);
  cli::CommandLine engine_line("", "tandem");
  EngineFlags engine;
  add_engine_flags(engine_line.root(), engine);
  const cli::Command options = add_simulate_flags(known_line.root(), known);
  ASSIGN_OR_RETURN(const sim::Scenario scenario,
                   sim::read_scenario(flags.scenario, {.options = options,
                                                       .stream = stream_line.root(),
                                                       .engine = engine_line.root()}));
  if (!scenario.vary.empty()) {
    return invalid_argument(
        fmt::format("{}: tune needs one load: leave `vary` out", flags.scenario), "scenario");
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<ReadRun> read, read_run(scenario.options, flags.scenario));
  read->flags.serve.node.policy = flags.policy;
  read->flags.serve.step_budget.clear();  // it is what is looked for
  read->flags.serve.fixed_step_budget = false;
  RETURN_IF_ERROR(
      log::start(flags.log_level.empty() ? read->flags.serve.log_level : flags.log_level));
  ASSIGN_OR_RETURN(PlannedRun planned, plan_run(read->flags));
  if (!planned.engines.empty()) {
    return invalid_argument(
        fmt::format("{}: tune needs one engine: leave `engine` out, and give its options as keys "
                    "of the scenario",
                    flags.scenario),
        "scenario");
  }
  const bool offline =
      sim::online_part(planned.load).requests.size() < planned.load.requests.size();
  if (!offline) {
    return invalid_argument(
        fmt::format("{}: no stream is best effort, so no budget makes a difference; give one the "
                    "key service-tier: flex",
                    flags.scenario),
        "scenario");
  }
  return TunedLoad{.run = std::move(planned), .flags = bench::flags_json(read->command)};
}

struct SettingRun {
  sim::TuneRun run;
  std::string config;  // effective, one JSON object
};

// Absent: the setting is too small, as a budget is that leaves no time beside a decode.
Result<std::optional<SettingRun>> run_with(const PlannedRun& planned, const loadgen::Load& load,
                                           const Knob& knob, int32_t setting,
                                           const std::vector<sim::TuneGoal>& goals) {
  sim::SimulateOptions options = planned.options;
  PolicyOptions& values = options.node.policy_options;
  values[knob.option] = setting;
  for (const PolicyOption* goal : {&kHoldMeanTbt, &kHoldP99Tbt, &kHoldMeanTtft, &kHoldP99Ttft}) {
    values[*goal] = 0;  // the budget under test stays
  }
  const Result<sim::Simulated> simulated =
      sim::simulate(options, load, [](const sim::SimulateProgress&) {});
  if (!simulated.ok()) {
    if (simulated.error().param == knob.option.name) {
      return std::optional<SettingRun>();
    }
    return simulated.error();
  }
  ASSIGN_OR_RETURN(sim::TuneRun run,
                   sim::measure_run(load, simulated->run.records, simulated->run.duration, goals));
  return std::optional(SettingRun{.run = std::move(run), .config = simulated->config});
}

nlohmann::ordered_json run_json(const sim::TuneRun& run, const std::vector<sim::TuneGoal>& goals) {
  nlohmann::ordered_json out;
  for (size_t i = 0; i < goals.size(); ++i) {
    out[std::string(sim::tune_metric_name(goals[i].metric)) + "_ms"] = run.metrics_ms[i];
  }
  out["best_effort_tokens_per_s"] = run.offline_tokens_per_s;
  out["latency_sensitive_lost"] = run.online_lost;
  return out;
}

bool flex_only(const sim::SimulateOptions& options) {
  return reads_option(options.node.policy, kStepBudgetFlexOnly) &&
         options.node.policy_options[kStepBudgetFlexOnly] == 1;
}

// `config`: of the run with the best setting.
nlohmann::ordered_json tuned_json(const TuneFlags& flags, const TunedLoad& load,
                                  const sim::Tuned& tuned, const std::vector<sim::TuneGoal>& goals,
                                  const std::string& config) {
  const PlannedRun& planned = load.run;
  nlohmann::ordered_json out;
  const Knob& knob = knob_of(flags.policy);
  out["tandem_step_budget"] = 1;
  out["policy"] = flags.policy;
  out[std::string(knob.field)] = tuned.best.setting;
  out["model"] = planned.options.node.model.string();
  out["model_digest"] = shape_digest(planned.options.shape);
  for (size_t i = 0; i < goals.size(); ++i) {
    out["hold_us"][std::string(sim::tune_metric_name(goals[i].metric))] =
        std::llround(tuned.allowed_ms[i] * 1e3);
  }
  out["scenario"] = flags.scenario;
  out["machine"] = planned.options.machine.name;
  for (const sim::TuneGoal& goal : goals) {
    out["tolerances"].push_back(goal.tolerance);
  }
  out["tolerance"] = goals.front().tolerance;
  if (flex_only(planned.options)) {
    out["flex_only"] = true;
  }
  out["without_best_effort"] = run_json(tuned.online, goals);
  out["with_budget"] = run_json(tuned.best.run, goals);
  for (const sim::TunedSetting& tried : tuned.tried) {
    nlohmann::ordered_json run = run_json(tried.run, goals);
    run[std::string(knob.field)] = tried.setting;
    run["kept"] = tried.kept;
    out["tried"].push_back(std::move(run));
  }
  out["config"] = nlohmann::ordered_json::parse(config);
  out["flags"] = load.flags;
  return out;
}

void print_tuned(const sim::Tuned& tuned, const std::vector<sim::TuneGoal>& goals,
                 const TuneFlags& flags, const sim::SimulateOptions& planned) {
  const Knob& knob = knob_of(flags.policy);
  fmt::print("{:24}{:>16}{:>16}{:>16}\n", "", "without", "allowed", "with best effort");
  for (size_t i = 0; i < goals.size(); ++i) {
    fmt::print("{:24}{:>13.2f} ms{:>13.2f} ms{:>13.2f} ms\n",
               sim::tune_metric_name(goals[i].metric), tuned.online.metrics_ms[i],
               tuned.allowed_ms[i], tuned.best.run.metrics_ms[i]);
  }
  fmt::print("{:24}{:>16}{:>16}{:>16.0f}\n", "best-effort tokens/s", "-", "-",
             tuned.best.run.offline_tokens_per_s);
  std::string how = &knob.option == &kHyGenStepBudget && !flags.out.empty()
                        ? fmt::format("--step-budget {}", flags.out)
                        : fmt::format("--{} {}", knob.option.name, tuned.best.setting);
  if (flex_only(planned) && flags.out.empty()) {
    how += fmt::format(" --{} 1", kStepBudgetFlexOnly.name);
  }
  fmt::print("{} after {} runs: serve with --policy {} {}\n", knob.show(tuned.best.setting),
             tuned.tried.size() + 1, flags.policy, how);
}

Result<std::vector<sim::TuneGoal>> goals_of(const TuneFlags& flags) {
  const std::vector<double>& tolerances = flags.tolerance_percents;
  if (tolerances.size() != 1 && tolerances.size() != flags.metrics.size()) {
    return invalid_argument(
        fmt::format("--tolerance has {} values for {} metrics: give one for all, or one for each",
                    tolerances.size(), flags.metrics.size()),
        "tolerance");
  }
  std::vector<sim::TuneGoal> goals;
  for (size_t i = 0; i < flags.metrics.size(); ++i) {
    ASSIGN_OR_RETURN(const sim::TuneMetric metric, sim::parse_tune_metric(flags.metrics[i]));
    if (std::ranges::find(goals, metric, &sim::TuneGoal::metric) != goals.end()) {
      return invalid_argument(fmt::format("--metric names {} twice", flags.metrics[i]), "metric");
    }
    goals.push_back(
        {.metric = metric, .tolerance = tolerances[tolerances.size() == 1 ? 0 : i] / 100});
  }
  return goals;
}

Status run_tune(const TuneFlags& flags) {
  const Knob& knob = knob_of(flags.policy);
  sim::TuneOptions options;
  ASSIGN_OR_RETURN(options.goals, goals_of(flags));
  options.least = knob.least;
  options.most = knob.most;
  options.show = knob.show;
  ASSIGN_OR_RETURN(const TunedLoad load, plan_tuned(flags));
  const PlannedRun& planned = load.run;
  const SteadyClock clock;
  ProgressBar bar("tuning", clock);
  int64_t runs = 0;
  const auto count_run = [&] { bar.show(++runs, options.most_runs + 1); };
  ASSIGN_OR_RETURN(
      const std::optional<SettingRun> online,
      run_with(planned, sim::online_part(planned.load), knob, knob.most, options.goals));
  count_run();
  if (!online.has_value()) {
    return invalid_argument("a decode of this model takes longer than the largest step budget",
                            "scenario");
  }
  if (online->run.online_lost > 0) {
    log::warn(
        "{} latency-sensitive requests are refused or have not ended at the run's limit, even "
        "without best effort. Settings that lose one more count as too large: a `limit` a minute "
        "after the last arrival lets all of them end",
        online->run.online_lost);
  }
  std::map<int32_t, std::string> configs;
  const auto run_setting = [&](int32_t setting) -> Result<std::optional<sim::TuneRun>> {
    Result<std::optional<SettingRun>> run =
        run_with(planned, planned.load, knob, setting, options.goals);
    count_run();
    if (!run.ok()) {
      return run.error();
    }
    if (!run->has_value()) {
      return std::optional<sim::TuneRun>();
    }
    configs[setting] = std::move((*run)->config);
    return std::optional(std::move((*run)->run));
  };
  const Result<sim::Tuned> tuned = sim::tune_setting(options, online->run, run_setting);
  bar.finish();
  if (!tuned.ok()) {
    return tuned.error();
  }
  print_tuned(*tuned, options.goals, flags, planned.options);
  return flags.out.empty()
             ? Status{}
             : loadgen::write_text(flags.out, tuned_json(flags, load, *tuned, options.goals,
                                                         configs.at(tuned->best.setting))
                                                      .dump(1) +
                                                  "\n");
}

}  // namespace

Subcommand add_tune_command(cli::Command tandem) {
  auto flags = std::make_shared<TuneFlags>();
  cli::Command app = tandem.add_subcommand(
      "tune",
      "Find the step budget of the policy hygen, or the rate of hygen_star, that keeps "
      "latency-sensitive requests within a tolerance of what they are without best effort, on the "
      "simulated machine");
  app.add_option("scenario", flags->scenario,
                 "YAML file as of `tandem simulate`, with the load of both classes; `policy`, "
                 "step budgets and what they hold do not count")
      .required();
  app.add_option(
         "--metric", flags->metrics,
         "Of latency-sensitive requests: mean_tbt, p99_tbt (time between tokens), mean_ttft "
         "or p99_ttft; several: all are kept")
      .capture_default_str();
  app.add_option("--tolerance", flags->tolerance_percents,
                 "So many percent longer than without best effort are allowed; several: one for "
                 "each metric")
      .capture_default_str()
      .in_range(0.1, 1000.0);
  std::vector<std::string> names;
  std::string help;
  for (const PolicyDescriptor* policy : policies()) {
    if (policy->traits.tuned != nullptr) {
      help += fmt::format("{}{} ({})", names.empty() ? "" : " or ", policy->name,
                          knob_of(policy->name).title);
      names.emplace_back(policy->name);
    }
  }
  app.add_option("--policy", flags->policy, help).capture_default_str().one_of(names);
  app.add_option("-o,--out", flags->out,
                 "JSON file for the budget, all runs and the configuration");
  OptionDescriptor log_level = log_level_option(flags->log_level);
  log_level.help += " (default: the scenario's)";
  cli::add_option(app, log_level);
  return {app, [flags] {
            const Status status = run_tune(*flags);
            if (!status.ok()) {
              log::error("{}", status.error().message);
              return status.error().code == ErrorCode::kInvalidArgument ? 2 : 1;
            }
            return 0;
          }};
}

}  // namespace tandem
