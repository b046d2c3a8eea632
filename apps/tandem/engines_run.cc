#include "engines_run.h"

#include <fmt/format.h>

#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/units.h"
#include "bench/load_progress.h"
#include "loadgen/headline.h"
#include "loadgen/report_html.h"
#include "loadgen/result_json.h"
#include "progress.h"
#include "sim/host_band.h"
#include "sim/machine_cards.h"
#include "sim/machine_report.h"
#include "simulate_results.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;
using loadgen::Headline;

struct EnginesOutcome {
  const PlannedRun& run;
  const sim::SeveralSimulated& result;
  const loadgen::Summary& summary;
  std::vector<Headline> headlines;
  sim::HostBand band = {};
};

Result<sim::SeveralSimulated> simulate_engines(const PlannedRun& run, const char* things) {
  const SteadyClock clock;
  CountProgress counted(things, clock);
  Result<sim::SeveralSimulated> simulated = sim::simulate(
      run.engines, run.options.limit, run.load, [&](const sim::SimulateProgress& progress) {
        counted.show(progress.ended, std::ssize(run.load.requests));
      });
  counted.finish();
  return simulated;
}

int64_t steps_of(const sim::SeveralSimulated& result) {
  int64_t steps = 0;
  for (const sim::EngineOutcome& engine : result.engines) {
    steps += engine.machine.steps();
  }
  return steps;
}

int64_t hops_of(const sim::SeveralSimulated& result) {
  int64_t hops = 0;
  for (const sim::EngineOutcome& engine : result.engines) {
    hops += engine.tiers.hops;
  }
  return hops;
}

// Of all engines together, then of each.
std::vector<Headline> headlines_of(const PlannedRun& run, const sim::SeveralSimulated& result,
                                   const loadgen::Summary& summary) {
  std::vector<Headline> headlines = loadgen::headlines_of(summary);
  headlines.push_back({"steps", static_cast<double>(steps_of(result))});
  headlines.push_back({"hops", static_cast<double>(hops_of(result))});
  if (const auto best_effort = sim::best_effort_rates(run.load, result.run)) {
    headlines.push_back({"best_effort_prompt_tokens_per_s", best_effort->prompt_tokens_per_s});
    headlines.push_back({"best_effort_output_tokens_per_s", best_effort->output_tokens_per_s});
  }
  for (size_t i = 0; i < run.engines.size(); ++i) {
    const std::string prefix = loadgen::engine_prefix(run.engines[i].name);
    for (Headline& headline : machine_headlines(run.engines[i].options, result.engines[i])) {
      headlines.push_back({prefix + headline.name, headline.value});
    }
  }
  return headlines;
}

// The same run with other bandwidths of the hosts, engines that compute on them included.
Result<sim::HostBand> simulate_band(const PlannedRun& run, double share) {
  sim::HostBand band{.share = share};
  for (const double factor : {1 - share, 1 + share}) {
    PlannedRun other = run;
    for (sim::EngineSetup& engine : other.engines) {
      for (sim::SimHostSpec& host : engine.options.hosts) {
        host.bytes_per_second *= factor;
      }
      if (engine.options.machine.accelerator.is_host) {
        engine.options.machine.accelerator.memory_bytes *= factor;
      }
    }
    ASSIGN_OR_RETURN(const sim::SeveralSimulated simulated,
                     simulate_engines(other, factor < 1 ? "requests with slower hosts"
                                                        : "requests with faster hosts"));
    (factor < 1 ? band.low : band.high) =
        headlines_of(other, simulated, loadgen::summarize(other.load, simulated.run));
  }
  return band;
}

// A row for each engine.
Json engine_rows(const PlannedRun& run, const sim::SeveralSimulated& result) {
  Json rows;
  for (size_t i = 0; i < run.engines.size(); ++i) {
    const sim::EngineSetup& setup = run.engines[i];
    const sim::EngineOutcome& outcome = result.engines[i];
    rows[setup.name] = {{"machine", setup.options.machine.name},
                        {"model", setup.options.node.model.string()},
                        {"policy", outcome.policy},
                        {"shares_host", setup.shares_host.empty() ? "no" : setup.shares_host},
                        {"steps", outcome.machine.steps()},
                        {"compute_busy", outcome.compute_busy},
                        {"host_busy", sim::share_of(outcome.machine, outcome.machine.busy().host)},
                        {"hops", outcome.tiers.hops},
                        {"offloaded", outcome.machine.mean_offloaded()}};
  }
  return rows;
}

loadgen::RunInfo info_of(const SimulateFlags& flags, cli::Command command, const PlannedRun& run,
                         const sim::SeveralSimulated& result) {
  loadgen::RunInfo info = run_info(flags, command);
  info.model.clear();
  for (size_t i = 0; i < run.engines.size(); ++i) {
    const sim::EngineSetup& setup = run.engines[i];
    const std::string shape = setup.options.node.model.string();
    info.url += fmt::format("{}{}: {}", i == 0 ? "" : "; ", setup.name, setup.options.machine.name);
    if (info.model.find(shape) == std::string::npos) {
      info.model += (info.model.empty() ? "" : ", ") + shape;
    }
    info.server_config[setup.name] = Json::parse(result.engines[i].config);
  }
  info.machine = {{"simulated", info.url}, {"steps", steps_of(result)}, {"hops", hops_of(result)}};
  info.machine["engines"] = engine_rows(run, result);
  return info;
}

void print_engines(const PlannedRun& run, const sim::SeveralSimulated& result) {
  for (size_t i = 0; i < run.engines.size(); ++i) {
    const sim::EngineSetup& setup = run.engines[i];
    const sim::EngineOutcome& outcome = result.engines[i];
    fmt::print("{:-^59}\n", fmt::format(" Engine {} ", setup.name));
    fmt::print("{} on {}, policy {}: {} steps, compute {:.0f} % busy\n",
               setup.options.node.model.string(), setup.options.machine.name, outcome.policy,
               outcome.machine.steps(), outcome.compute_busy * 100);
    fmt::print("{}", sim::machine_text(outcome.machine, outcome.best_effort));
  }
}

// The cards of each engine below its name. Files of plots begin with it.
loadgen::ReportPage engine_cards(const PlannedRun& run, const sim::SeveralSimulated& result) {
  loadgen::ReportPage page;
  for (size_t i = 0; i < run.engines.size(); ++i) {
    const std::string& name = run.engines[i].name;
    loadgen::ReportPage cards = sim::machine_cards(result.engines[i].machine);
    page.html +=
        fmt::format("<h2>Engine {}</h2>{}", name,
                    cards.html.empty() ? "<p class=\"note\">It took no step.</p>" : cards.html);
    for (loadgen::PlotFile& plot : cards.plots) {
      page.plots.push_back({.name = name + "-" + plot.name, .svg = std::move(plot.svg)});
    }
  }
  return page;
}

Json result_of(const loadgen::RunInfo& info, const EnginesOutcome& outcome) {
  const PlannedRun& run = outcome.run;
  Json json = loadgen::result_json(info, run.load, outcome.result.run, outcome.summary,
                                   loadgen::Detail::kSummary);
  for (const Headline& headline : outcome.headlines) {
    json["tandem"]["headline"][headline.name] = headline.value ? Json(*headline.value) : Json();
  }
  for (size_t i = 0; i < run.engines.size(); ++i) {
    json["tandem"]["engines"][i]["machine"] =
        machine_json_of(run.engines[i].options, outcome.result.engines[i]);
  }
  if (outcome.band.share > 0) {
    json["tandem"]["host_band"] = sim::band_json(outcome.band);
  }
  return json;
}

Status write_engines(const std::string& out, const loadgen::RunInfo& info,
                     const EnginesOutcome& outcome) {
  const PlannedRun& run = outcome.run;
  loadgen::ReportPage cards = engine_cards(run, outcome.result);
  if (outcome.band.share > 0) {
    cards.html += sim::band_card(outcome.band, outcome.headlines);
    RETURN_IF_ERROR(
        loadgen::write_text(out + "/band.csv", sim::band_csv(outcome.band, outcome.headlines)));
  }
  RETURN_IF_ERROR(
      loadgen::write_text(out + "/result.json", result_of(info, outcome).dump(1) + "\n"));
  RETURN_IF_ERROR(
      loadgen::write_text(out + "/summary.csv", loadgen::headline_csv(outcome.headlines)));
  const loadgen::ReportPage page =
      loadgen::report_page(info, run.load, outcome.result.run, outcome.summary, cards.html);
  RETURN_IF_ERROR(loadgen::write_text(out + "/report.html", page.html));
  RETURN_IF_ERROR(loadgen::write_plots(out + "/plots", page.plots));
  RETURN_IF_ERROR(loadgen::write_plots(out + "/plots", cards.plots));
  for (size_t i = 0; i < run.engines.size(); ++i) {
    RETURN_IF_ERROR(loadgen::write_text(fmt::format("{}/machine-{}.csv", out, run.engines[i].name),
                                        sim::machine_csv(outcome.result.engines[i].machine)));
  }
  log::info(
      "wrote {0}/result.json, {0}/summary.csv, {0}/machine-NAME.csv, {0}/report.html and {0}/plots",
      out);
  return {};
}

}  // namespace

Status run_engines(const SimulateFlags& flags, cli::Command command, const PlannedRun& run,
                   const std::string& out) {
  const SteadyClock clock;
  const Nanos began = clock.now();
  ASSIGN_OR_RETURN(const sim::SeveralSimulated simulated, simulate_engines(run, "requests"));
  const Nanos took = clock.now() - began;
  const loadgen::Summary summary = loadgen::summarize(run.load, simulated.run);
  EnginesOutcome outcome{.run = run,
                         .result = simulated,
                         .summary = summary,
                         .headlines = headlines_of(run, simulated, summary)};
  fmt::print("{} engines: {} of load in {} ({} steps)\n", run.engines.size(),
             format_duration(simulated.run.duration), format_duration(took), steps_of(simulated));
  fmt::print("{}", bench::summary_text(summary, {"ttft", "tpot", "itl"}, {50, 99}));
  print_engines(run, simulated);
  std::fflush(stdout);  // before what the log says
  if (simulated.run.interrupted) {
    log::warn("the run reached its limit of {} (--limit) before all requests ended",
              format_duration(run.options.limit));
  }
  if (flags.host_band > 0) {
    ASSIGN_OR_RETURN(outcome.band, simulate_band(run, flags.host_band));
    fmt::print("{}", sim::band_text(outcome.band, outcome.headlines));
    std::fflush(stdout);
  }
  return out.empty() ? Status{}
                     : write_engines(out, info_of(flags, command, run, simulated), outcome);
}

}  // namespace tandem
