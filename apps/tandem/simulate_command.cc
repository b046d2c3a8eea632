// `tandem simulate`: a load on a simulated machine, in virtual time; or a sweep of them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/json_values.h"
#include "base/log.h"
#include "base/units.h"
#include "bench/load_progress.h"
#include "cli/config_file.h"
#include "cli/exit_code.h"
#include "commands.h"
#include "engines_run.h"
#include "loadgen/result_json.h"
#include "progress.h"
#include "scenario_run.h"
#include "sim/machine_report.h"
#include "sim/scenario.h"
#include "sim/simulate.h"
#include "sim/sweep_report.h"
#include "simulate_flags.h"
#include "simulate_results.h"
#include "sweep_run.h"
#include "version.h"
#include "vllm_flags.h"

namespace tandem {
namespace {

constexpr int kExitStopped = 130;  // as shells report Ctrl-C

Result<sim::Simulated> simulate(const PlannedRun& run, const char* things) {
  const SteadyClock clock;
  CountProgress counted(things, clock);
  Result<sim::Simulated> simulated =
      sim::simulate(run.options, run.load, [&](const sim::SimulateProgress& progress) {
        counted.show(progress.ended, std::ssize(run.load.requests));
      });
  counted.finish();
  return simulated;
}

// The same run with other bandwidths of the hosts.
Result<sim::HostBand> simulate_band(const PlannedRun& run, double share) {
  sim::HostBand band{.share = share};
  for (const double factor : {1 - share, 1 + share}) {
    PlannedRun other = run;
    for (sim::SimHostSpec& host : other.options.hosts) {
      host.bytes_per_second *= factor;
    }
    ASSIGN_OR_RETURN(const sim::Simulated simulated,
                     simulate(other, factor < 1 ? "requests with a slower host"
                                                : "requests with a faster host"));
    (factor < 1 ? band.low : band.high) =
        headlines_of(loadgen::summarize(other.load, simulated.run), other.options, simulated);
  }
  return band;
}

Status run_planned(const SimulateFlags& flags, cli::Command command, const PlannedRun& run,
                   const std::string& out) {
  if (!run.engines.empty()) {
    return run_engines(flags, command, run, out);
  }
  const SteadyClock clock;
  const Nanos began = clock.now();
  ASSIGN_OR_RETURN(const sim::Simulated simulated, simulate(run, "requests"));
  const Nanos took = clock.now() - began;
  const loadgen::Summary summary = loadgen::summarize(run.load, simulated.run);
  fmt::print("{} on {}, policy {}: {} of load in {} ({} steps, compute {:.0f} % busy)\n",
             flags.shape, run.options.machine.name, simulated.policy,
             format_duration(simulated.run.duration), format_duration(took),
             simulated.machine.steps(), simulated.compute_busy * 100);
  fmt::print("{}", bench::summary_text(summary, {"ttft", "tpot", "itl"}, {50, 99}));
  fmt::print("{}", sim::machine_text(simulated.machine, simulated.best_effort));
  std::fflush(stdout);  // before what the log says
  if (simulated.run.interrupted) {
    log::warn("the run reached its limit of {} (--limit) before all requests ended",
              format_duration(run.options.limit));
  }
  RunOutcome outcome{.run = run, .result = simulated, .summary = summary};
  if (flags.host_band > 0) {
    ASSIGN_OR_RETURN(outcome.band, simulate_band(run, flags.host_band));
    fmt::print("{}", sim::band_text(outcome.band, headlines_of(summary, run.options, simulated)));
    std::fflush(stdout);
  }
  return out.empty() ? Status{}
                     : write_results(out, info_of(flags, command, run.options, simulated), outcome);
}

// Whether the point would run: all but the simulation itself.
Status check_point(const cli::ConfigNode& options, const std::string& file) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ReadRun> read, read_run(options, file));
  ASSIGN_OR_RETURN(const PlannedRun planned, plan_run(read->flags));
  return planned.engines.empty() ? sim::check(planned.options) : sim::check(planned.engines);
}

Result<sim::Sweep> sweep_of(const sim::Scenario& scenario,
                            const std::vector<sim::SweepPoint>& points,
                            const std::vector<PointOutcome>& outcomes, const std::string& out) {
  sim::Sweep sweep;
  sweep.scenario = scenario.file;
  sweep.made_by = *kCommit == '\0' ? fmt::format("tandem {}", kVersion)
                                   : fmt::format("tandem {} ({})", kVersion, kCommit);
  for (const sim::VariedKey& varied : scenario.vary) {
    sweep.keys.push_back(varied.key);
  }
  for (size_t i = 0; i < points.size(); ++i) {
    sim::SweptPoint& swept = sweep.points.emplace_back();
    swept.name = points[i].name;
    swept.failure = outcomes[i].failure;
    for (const cli::ConfigNode& value : points[i].values) {
      swept.values.push_back(value.text);
    }
    if (!swept.failure.empty()) {
      continue;
    }
    const std::string file = fmt::format("{}/points/{}/result.json", out, swept.name);
    const auto json = nlohmann::ordered_json::parse(std::ifstream(file), nullptr, false);
    if (!json.is_object() || !json.contains("/tandem/headline"_json_pointer)) {
      swept.failure = fmt::format("it left no result in '{}'", file);
      continue;
    }
    for (const auto& [name, value] : json["tandem"]["headline"].items()) {
      swept.headlines.push_back({.name = name, .value = json_number(value)});
    }
    swept.band = sim::read_band(json["tandem"].value("host_band", nlohmann::ordered_json()));
  }
  return sweep;
}

Status write_sweep(const sim::Sweep& sweep, const std::string& out) {
  RETURN_IF_ERROR(loadgen::write_text(out + "/sweep.csv", sim::sweep_csv(sweep)));
  RETURN_IF_ERROR(loadgen::write_text(out + "/sweep.json", sim::sweep_json(sweep).dump(1) + "\n"));
  const std::string band = sim::sweep_band_csv(sweep);
  if (!band.empty()) {
    RETURN_IF_ERROR(loadgen::write_text(out + "/sweep-band.csv", band));
  }
  const loadgen::ReportPage page = sim::sweep_page(sweep);
  RETURN_IF_ERROR(loadgen::write_plots(out + "/plots", page.plots));
  return loadgen::write_text(out + "/sweep.html", page.html);
}

Result<int> run_sweep(const SimulateFlags& flags, const sim::Scenario& scenario,
                      const std::vector<sim::SweepPoint>& points, const sim::ScenarioKeys& keys) {
  if (flags.out.empty()) {
    return invalid_argument("a sweep needs a folder for its results; give -o DIR", "out");
  }
  for (const sim::SweepPoint& point : points) {
    const Status checked = check_point(point_options(scenario, point, keys), scenario.file);
    if (!checked.ok()) {
      return located(checked.error(), scenario, &point, keys);
    }
  }
  RETURN_IF_ERROR(prepare_folder(flags.out));
  std::error_code failure;
  for (const char* file : {"sweep.csv", "sweep-band.csv", "sweep.json", "sweep.html"}) {
    std::filesystem::remove(std::filesystem::path(flags.out) / file, failure);  // of another sweep
  }
  std::vector<std::filesystem::path> folders;
  for (const sim::SweepPoint& point : points) {
    folders.push_back(std::filesystem::path(flags.out) / "points" / point.name);
    RETURN_IF_ERROR(loadgen::write_text(folders.back() / "scenario.yaml",
                                        cli::config_text(point_options(scenario, point, keys))));
    std::filesystem::remove(folders.back() / "result.json", failure);
  }
  const SteadyClock clock;
  const PointsRun ran = run_points(folders, flags.jobs, clock);
  if (ran.stopped) {
    std::vector<std::string> complete;
    for (size_t i = 0; i < points.size(); ++i) {
      if (ran.outcomes[i].ended && ran.outcomes[i].failure.empty()) {
        complete.push_back(points[i].name);
      }
    }
    log::error("stopped: {} of {} points are complete in {}/points{}{}", complete.size(),
               points.size(), flags.out, complete.empty() ? "" : ": ", fmt::join(complete, ", "));
    return kExitStopped;
  }
  ASSIGN_OR_RETURN(const sim::Sweep sweep, sweep_of(scenario, points, ran.outcomes, flags.out));
  RETURN_IF_ERROR(write_sweep(sweep, flags.out));
  fmt::print("{}", sim::sweep_text(sweep));
  int failed = 0;
  for (const sim::SweptPoint& point : sweep.points) {
    if (!point.failure.empty()) {
      ++failed;
      log::error("the point {} failed: {}; its log is {}/points/{}/log", point.name, point.failure,
                 flags.out, point.name);
    }
  }
  fmt::print("{} of {} points ran; wrote sweep.csv, sweep.json, sweep.html and plots in {}\n",
             points.size() - static_cast<size_t>(failed), points.size(), flags.out);
  return failed > 0 ? 1 : 0;
}

// `out` and `jobs` of a file say how it is run, and do not belong to its points.
Status take_out_and_jobs(sim::Scenario& scenario, SimulateFlags& flags) {
  cli::ConfigNode own;
  std::erase_if(scenario.options.inner, [&own](const cli::ConfigNode& entry) {
    const bool is_own = entry.key == "out" || entry.key == "jobs";
    if (is_own) {
      own.inner.push_back(entry);
    }
    return is_own;
  });
  ASSIGN_OR_RETURN(const std::unique_ptr<ReadRun> read, read_run(own, scenario.file));
  flags.out = flags.out.empty() ? read->flags.out : flags.out;
  flags.jobs = flags.jobs == 0 ? read->flags.jobs : flags.jobs;
  return {};
}

Result<int> run_scenario(SimulateFlags& flags, cli::Command command) {
  const KnownKeys known(command);
  const sim::ScenarioKeys& keys = known.keys();
  ASSIGN_OR_RETURN(sim::Scenario scenario, sim::read_scenario(flags.scenario, keys));
  const Status taken = take_out_and_jobs(scenario, flags);
  if (!taken.ok()) {
    return invalid_argument(fmt::format("{}: {}", scenario.file, taken.error().message), "");
  }
  RETURN_IF_ERROR(add_given(scenario, given_options(command), keys));
  ASSIGN_OR_RETURN(const std::vector<sim::SweepPoint> points, points_of(scenario));
  if (!points.empty()) {
    return run_sweep(flags, scenario, points, keys);
  }
  const auto run = [&]() -> Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<ReadRun> read,
                     read_run(scenario.options, flags.scenario));
    RETURN_IF_ERROR(log::start(read->flags.serve.log_level));
    ASSIGN_OR_RETURN(const PlannedRun planned, plan_run(read->flags));
    if (!flags.out.empty()) {
      RETURN_IF_ERROR(prepare_folder(flags.out));
    }
    return run_planned(read->flags, read->command, planned, flags.out);
  };
  const Status status = run();
  if (!status.ok()) {
    return located(status.error(), scenario, nullptr, keys);
  }
  return 0;
}

Result<int> run_simulate(SimulateFlags& flags, cli::Command command) {
  RETURN_IF_ERROR(log::start(flags.serve.log_level));
  if (!flags.scenario.empty()) {
    return run_scenario(flags, command);
  }
  ASSIGN_OR_RETURN(const PlannedRun planned, plan_run(flags));
  if (!flags.out.empty()) {
    RETURN_IF_ERROR(prepare_folder(flags.out));
  }
  RETURN_IF_ERROR(run_planned(flags, command, planned, flags.out));
  return 0;
}

}  // namespace

RunCommand describe_simulate(cli::Command app) {
  auto flags = std::make_shared<SimulateFlags>();
  add_simulate_flags(app, *flags);
  return [flags, app] {
    const Result<int> code = run_simulate(*flags, app);
    if (!code.ok()) {
      log::error("{}", code.error().message);
      return cli::exit_code_of(code.error().code);
    }
    return *code;
  };
}

}  // namespace tandem
