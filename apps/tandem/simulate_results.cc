#include "simulate_results.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/date.h"
#include "base/log.h"
#include "loadgen/headline.h"
#include "loadgen/report_html.h"
#include "loadgen/result_json.h"
#include "sim/machine_cards.h"
#include "sim/machine_report.h"
#include "version.h"

namespace tandem {
namespace {

// What would run the same again, without the folder for results.
std::string command_line(cli::Command command) {
  std::string text = "tandem simulate";
  for (const cli::GivenOption& option : given_options(command)) {
    for (const std::string& value : option.given) {
      const bool is_plain = std::ranges::all_of(value, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view("_./,:+-").find(c) != std::string_view::npos;
      });
      std::string quoted;
      for (const char c : value) {
        quoted += c == '\'' ? "'\\''" : std::string(1, c);
      }
      text += is_plain ? fmt::format(" --{}={}", option.name, value)
                       : fmt::format(" --{}='{}'", option.name, quoted);
    }
  }
  return text;
}

}  // namespace

std::vector<loadgen::Headline> machine_headlines(const sim::SimulateOptions& options,
                                                 const sim::EngineOutcome& result) {
  std::vector<loadgen::Headline> headlines =
      sim::machine_headlines(result.machine, result.best_effort);
  headlines.push_back({"compute_busy", result.compute_busy});
  if (options.machine.host_memory_bytes > 0) {
    const auto hops = static_cast<double>(result.tiers.hops);
    headlines.push_back({"hops", hops});
    // Every offloaded token hops once in each layer.
    const auto layers = static_cast<double>(options.shape.layers * result.machine.steps());
    headlines.push_back({"offloaded_tokens_per_step", layers > 0 ? hops / layers : 0});
  }
  return headlines;
}

std::vector<loadgen::Headline> headlines_of(const loadgen::Summary& summary,
                                            const sim::SimulateOptions& options,
                                            const sim::Simulated& result) {
  std::vector<loadgen::Headline> headlines = loadgen::headlines_of(summary);
  const std::vector<loadgen::Headline> machine = machine_headlines(options, result);
  headlines.insert(headlines.end(), machine.begin(), machine.end());
  return headlines;
}

std::vector<cli::GivenOption> given_options(cli::Command command) {
  std::vector<cli::GivenOption> given = command.values();
  std::erase_if(given, [](const cli::GivenOption& option) {
    return option.given.empty() || option.name == "config" || option.name == "out" ||
           option.name == "jobs";
  });
  return given;
}

loadgen::RunInfo run_info(const SimulateFlags& flags, cli::Command command) {
  loadgen::RunInfo info;
  info.tandem_version = kVersion;
  info.commit = kCommit;
  info.command = command_line(command);
  info.date = utc_date_text();
  info.backend = "simulated";
  info.model = flags.shape;
  info.request_rate = flags.stream.request_rate;
  info.burstiness = flags.stream.burstiness;
  info.config = nlohmann::ordered_json::object();
  for (const cli::GivenOption& option : command.values()) {
    info.config[option.name] = option.given.empty()
                                   ? option.default_text
                                   : fmt::format("{}", fmt::join(option.given, " "));
  }
  return info;
}

nlohmann::ordered_json machine_json_of(const sim::SimulateOptions& options,
                                       const sim::EngineOutcome& result) {
  const device::SimSpec& machine = options.machine;
  double host_gbps = 0;
  int32_t host_workers = 0;
  for (const sim::SimHostSpec& host : options.hosts) {
    host_gbps += host.bytes_per_second / 1e9;
    host_workers += host.workers;
  }
  nlohmann::ordered_json json = {{"simulated", machine.name},
                                 {"memory_bytes", machine.memory_bytes},
                                 {"link_bytes_per_second", machine.link_bytes},
                                 {"host_memory_bytes", machine.host_memory_bytes},
                                 {"host_gbps", host_gbps},
                                 {"host_workers", host_workers},
                                 {"steps", result.machine.steps()},
                                 {"hops", result.tiers.hops},
                                 {"visits", result.tiers.visits},
                                 {"offloaded_bytes", result.tiers.offloaded_bytes},
                                 {"attended_bytes", result.tiers.attended_bytes},
                                 {"compute_busy", result.compute_busy}};
  for (size_t i = 0; options.hosts.size() > 1 && i < options.hosts.size(); ++i) {
    const sim::SimHostSpec& host = options.hosts[i];
    json["hosts"][fmt::format("host {}", i + 1)] = {{"kv_bytes", host.kv_bytes},
                                                    {"gbps", host.bytes_per_second / 1e9},
                                                    {"workers", host.workers},
                                                    {"link_gbps", host.link_bytes / 1e9},
                                                    {"latency_us", to_seconds(host.latency) * 1e6}};
  }
  json.update(sim::machine_json(result.machine, result.best_effort));
  if (result.profile.has_value()) {
    json["profile"]["virtual_s"] = to_seconds(result.profiled);
    const auto add = [&json](const char* name, const latency::Accuracy& met) {
      json["profile"]["accuracy"][name] = {
          {"batches", met.batches}, {"mean", met.mean}, {"p90", met.p90}, {"p99", met.p99}};
    };
    add("modular", result.profile->accuracy.modular);
    add("regression", result.profile->accuracy.regression);
    add("table", result.profile->accuracy.table);
  }
  return json;
}

loadgen::RunInfo info_of(const SimulateFlags& flags, cli::Command command,
                         const sim::SimulateOptions& options, const sim::Simulated& result) {
  loadgen::RunInfo info = run_info(flags, command);
  info.url = options.machine.name;
  info.machine = machine_json_of(options, result);
  info.server_config = nlohmann::ordered_json::parse(result.config);
  return info;
}

Status prepare_folder(const std::string& folder) {
  const auto refused = [&folder](std::string_view why) {
    return invalid_argument(
        fmt::format("-o '{}': {}; name a folder that can be written", folder, why), "");
  };
  std::error_code failure;
  if (std::filesystem::exists(folder, failure) && !std::filesystem::is_directory(folder, failure)) {
    return refused("it is a file");
  }
  std::filesystem::create_directories(folder, failure);
  if (failure) {
    return refused(fmt::format("it cannot be made ({})", failure.message()));
  }
  const std::filesystem::path probe = std::filesystem::path(folder) / "result.json.part";
  if (!std::ofstream(probe)) {
    return refused("it cannot be written");
  }
  std::filesystem::remove(probe, failure);
  return {};
}

Status write_results(const std::string& out, const loadgen::RunInfo& info,
                     const RunOutcome& outcome) {
  const auto& [run, result, summary, band] = outcome;
  auto json = loadgen::result_json(info, run.load, result.run, summary, loadgen::Detail::kSummary);
  const std::vector<loadgen::Headline> headlines = headlines_of(summary, run.options, result);
  for (const loadgen::Headline& headline : headlines) {
    json["tandem"]["headline"][headline.name] =
        headline.value ? nlohmann::ordered_json(*headline.value) : nlohmann::ordered_json();
  }
  loadgen::ReportPage machine = sim::machine_cards(result.machine);
  if (band.share > 0) {
    json["tandem"]["host_band"] = sim::band_json(band);
    machine.html += sim::band_card(band, headlines);
    RETURN_IF_ERROR(loadgen::write_text(out + "/band.csv", sim::band_csv(band, headlines)));
  }
  RETURN_IF_ERROR(loadgen::write_text(out + "/result.json", json.dump(1) + "\n"));
  RETURN_IF_ERROR(loadgen::write_text(out + "/summary.csv", loadgen::headline_csv(headlines)));
  const loadgen::ReportPage page =
      loadgen::report_page(info, run.load, result.run, summary, machine.html);
  RETURN_IF_ERROR(loadgen::write_text(out + "/report.html", page.html));
  RETURN_IF_ERROR(loadgen::write_plots(out + "/plots", page.plots));
  RETURN_IF_ERROR(loadgen::write_plots(out + "/plots", machine.plots));
  RETURN_IF_ERROR(loadgen::write_text(out + "/machine.csv", sim::machine_csv(result.machine)));
  log::info(
      "wrote {0}/result.json, {0}/summary.csv, {0}/machine.csv, {0}/report.html and {0}/plots",
      out);
  return {};
}

}  // namespace tandem
