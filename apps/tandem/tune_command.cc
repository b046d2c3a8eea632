// `tandem tune`: the step budget of the policy hygen, or the rate of its baseline hygen_star, that
// keeps a metric of latency-sensitive requests within a tolerance, found on the simulated machine
// (HyGen 4.2).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "cli/exit_code.h"
#include "cli/option_flags.h"
#include "commands.h"
#include "loadgen/result_json.h"
#include "node/time_profile.h"
#include "progress.h"
#include "scheduler/policies/hygen.h"
#include "scheduler/policies/registry.h"
#include "shared_options.h"
#include "sim/tune.h"
#include "tune_loads.h"

namespace tandem {
namespace {

struct TuneFlags {
  std::string scenario;
  std::vector<std::string> metrics = {"p99_tbt"};
  std::vector<double> tolerance_percents = {5};  // one, or one for each metric
  std::string policy{kHyGen.name};
  std::string out;
  int32_t jobs = 0;       // 0: the scenario's
  std::string log_level;  // empty: the scenario's
};

nlohmann::ordered_json run_json(const sim::TuneRun& run, const std::vector<sim::TuneGoal>& goals) {
  nlohmann::ordered_json out;
  for (size_t i = 0; i < goals.size(); ++i) {
    out[std::string(sim::tune_metric_name(goals[i].metric)) + "_ms"] = run.metrics_ms[i];
  }
  out["best_effort_tokens_per_s"] = run.offline_tokens_per_s;
  out["latency_sensitive_lost"] = run.online_lost;
  return out;
}

// The run of the only load as an object; runs of several loads as a list, each with its name.
nlohmann::ordered_json runs_json(const std::vector<sim::TuneRun>& runs, const TuneLoads& loads,
                                 const std::vector<sim::TuneGoal>& goals) {
  if (runs.size() == 1) {
    return run_json(runs.front(), goals);
  }
  nlohmann::ordered_json out;
  for (size_t i = 0; i < runs.size(); ++i) {
    out["loads"].push_back(run_json(runs[i], goals));
    out["loads"].back()["load"] = loads.loads[i].name;
  }
  return out;
}

// The searches that found a setting: one with a budget for all work, one with a budget for best
// effort only. Without that option there is one search.
struct Found {
  std::vector<std::optional<int32_t>> flex_only;  // the option's value in each search
  std::vector<sim::Tuned> tuned;                  // the result of each search
  size_t best = 0;                                // index of the better search

  [[nodiscard]] const sim::Tuned& better() const { return tuned[best]; }
  [[nodiscard]] bool is_flex_only() const { return flex_only[best] == 1; }
};

nlohmann::ordered_json found_json(const TuneFlags& flags, const TuneLoads& loads,
                                  const Found& found, const std::vector<sim::TuneGoal>& goals,
                                  const std::string& config) {
  const sim::SimulateOptions& planned = loads.loads.front().run.options;
  const sim::Tuned& tuned = found.better();
  nlohmann::ordered_json out;
  const Knob& knob = knob_of(flags.policy);
  out["tandem_step_budget"] = 1;
  out["policy"] = flags.policy;
  out[std::string(knob.field)] = tuned.best.setting;
  out["model"] = planned.node.model.string();
  out["model_digest"] = shape_digest(planned.shape);
  for (size_t i = 0; i < goals.size(); ++i) {
    double allowed_ms = tuned.allowed_ms.front()[i];
    for (const std::vector<double>& allowed : tuned.allowed_ms) {
      allowed_ms = std::min(allowed_ms, allowed[i]);
    }
    out["hold_us"][std::string(sim::tune_metric_name(goals[i].metric))] =
        std::min<int64_t>(std::llround(allowed_ms * 1e3), std::numeric_limits<int32_t>::max());
  }
  out["scenario"] = flags.scenario;
  out["machine"] = planned.machine.name;
  for (const sim::TuneGoal& goal : goals) {
    out["tolerances"].push_back(goal.tolerance);
  }
  out["tolerance"] = goals.front().tolerance;
  if (found.is_flex_only()) {
    out["flex_only"] = true;
  }
  out["best_effort_tokens_per_s"] = tuned.best.offline_tokens_per_s();
  out["without_best_effort"] = runs_json(tuned.online, loads, goals);
  out["with_budget"] = runs_json(tuned.best.runs, loads, goals);
  for (size_t way = 0; way < found.tuned.size(); ++way) {
    for (const sim::TunedSetting& tried : found.tuned[way].tried) {
      nlohmann::ordered_json run = runs_json(tried.runs, loads, goals);
      run[std::string(knob.field)] = tried.setting;
      run["kept"] = tried.kept;
      if (found.flex_only[way] == 1) {
        run["flex_only"] = true;
      }
      out["tried"].push_back(std::move(run));
    }
  }
  out["config"] = nlohmann::ordered_json::parse(config);
  out["flags"] = loads.flags;
  return out;
}

void print_found(const Found& found, const TuneLoads& loads,
                 const std::vector<sim::TuneGoal>& goals, const TuneFlags& flags) {
  const Knob& knob = knob_of(flags.policy);
  const sim::Tuned& tuned = found.better();
  fmt::print("{:22}{:>14}{:>14}{:>18}\n", "", "without", "allowed", "with best effort");
  for (size_t i = 0; i < goals.size(); ++i) {
    const size_t load = sim::nearest_load(tuned, tuned.best, i);
    fmt::print("{:22}{:>11.2f} ms{:>11.2f} ms{:>15.2f} ms{}\n",
               sim::tune_metric_name(goals[i].metric), tuned.online[load].metrics_ms[i],
               tuned.allowed_ms[load][i], tuned.best.runs[load].metrics_ms[i],
               loads.loads.size() > 1 ? fmt::format("  nearest of {} loads: {}", loads.loads.size(),
                                                    loads.loads[load].name)
                                      : "");
  }
  fmt::print("{:22}{:>14}{:>14}{:>18.0f}\n", "best-effort tokens/s", "-", "-",
             tuned.best.offline_tokens_per_s());
  size_t settings = 0;
  for (const sim::Tuned& way : found.tuned) {
    settings += way.tried.size();
  }
  std::string how = &knob.option == &kHyGenStepBudget && !flags.out.empty()
                        ? fmt::format("--step-budget {}", flags.out)
                        : fmt::format("--{} {}", knob.option.name, tuned.best.setting);
  if (found.is_flex_only() && flags.out.empty()) {
    how += fmt::format(" --{} 1", kStepBudgetFlexOnly.name);
  }
  fmt::print("{}{}, the best of {} that were tried: serve with --policy {} {}\n",
             knob.show(tuned.best.setting), found.is_flex_only() ? " for best effort only" : "",
             settings, flags.policy, how);
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

// Searches a budget for all work and a budget for best effort only, or the kind that the scenario
// names. The second kind is better if it serves 1 % more. An error if no search finds a setting.
Result<Found> find(const sim::TuneOptions& options, const TuneLoads& loads, TuneRunner& runner,
                   const std::vector<sim::TuneRun>& online) {
  std::vector<std::optional<int32_t>> ways = {loads.flex_only};
  if (loads.may_be_flex_only && !loads.flex_only.has_value()) {
    ways = {0, 1};
  }
  Found found;
  std::optional<Error> first_error;
  double max_served = 0;
  for (const std::optional<int32_t>& way : ways) {
    Result<sim::Tuned> tuned = sim::tune_setting(
        options, online,
        [&](const std::vector<int32_t>& settings) { return runner.with(settings, way); });
    if (!tuned.ok()) {
      if (tuned.error().param != "tolerance") {
        return tuned.error();
      }
      first_error = first_error.value_or(tuned.error());
      continue;
    }
    const double served = tuned->best.offline_tokens_per_s();
    found.flex_only.push_back(way);
    found.tuned.push_back(*std::move(tuned));
    if (found.tuned.size() == 1 || served > 1.01 * max_served) {
      found.best = found.tuned.size() - 1;
      max_served = served;
    }
  }
  if (found.tuned.empty()) {
    if (ways.size() > 1) {
      first_error->message +=
          fmt::format("; nor does a budget with --{} 1", kStepBudgetFlexOnly.name);
    }
    return *std::move(first_error);
  }
  return found;
}

void warn_of_lost(const std::vector<sim::TuneRun>& online) {
  int64_t lost = 0;
  for (const sim::TuneRun& run : online) {
    lost += run.online_lost;
  }
  if (lost > 0) {
    log::warn(
        "{} latency-sensitive requests are refused or have not ended at the run's limit, even "
        "without best effort. Settings that lose one more count as too large: a `limit` a minute "
        "after the last arrival lets all of them end",
        lost);
  }
}

Status run_tune(const TuneFlags& flags) {
  const Knob& knob = knob_of(flags.policy);
  sim::TuneOptions options;
  ASSIGN_OR_RETURN(options.goals, goals_of(flags));
  options.min = knob.min;
  options.max = knob.max;
  options.show = knob.show;
  ASSIGN_OR_RETURN(const TuneLoads loads,
                   plan_tune_loads(flags.scenario, flags.policy, flags.log_level));
  const SteadyClock clock;
  CountProgress progress("runs", clock);
  int64_t runs = 0;
  TuneRunner runner(loads, knob, options.goals, flags.jobs > 0 ? flags.jobs : loads.jobs,
                    [&](size_t more) {
                      runs += static_cast<int64_t>(more);
                      progress.show(runs, 0);
                    });
  ASSIGN_OR_RETURN(const std::vector<sim::TuneRun> online, runner.without_best_effort());
  warn_of_lost(online);
  const Result<Found> found = find(options, loads, runner, online);
  progress.finish();
  if (!found.ok()) {
    return found.error();
  }
  print_found(*found, loads, options.goals, flags);
  const std::string& config =
      runner.config(found->better().best.setting, found->flex_only[found->best]);
  return flags.out.empty()
             ? Status{}
             : loadgen::write_text(
                   flags.out,
                   found_json(flags, loads, *found, options.goals, config).dump(1) + "\n");
}

}  // namespace

RunCommand describe_tune(cli::Command app) {
  auto flags = std::make_shared<TuneFlags>();
  app.add_option("scenario", flags->scenario,
                 "YAML file as of `tandem simulate`, with the load of both classes; `policy`, "
                 "step budgets and what they hold do not count; each point of `vary` is a load, "
                 "and metrics are kept with all of them")
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
                 "JSON file for the budget, the runs and the configuration");
  app.add_option("--jobs", flags->jobs,
                 "Runs at a time (default: one for each core that may be used)")
      .in_range(1, 1024);
  OptionDescriptor log_level = log_level_option(flags->log_level);
  log_level.help += " (default: the scenario's)";
  cli::add_option(app, log_level);
  return [flags] {
    const Status status = run_tune(*flags);
    if (!status.ok()) {
      log::error("{}", status.error().message);
      return cli::exit_code_of(status.error().code);
    }
    return 0;
  };
}

}  // namespace tandem
