// `tandem simulate`: a load on a simulated machine, in virtual time.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/units.h"
#include "bench/load_flags.h"
#include "bench/load_progress.h"
#include "commands.h"
#include "commit.h"
#include "loadgen/load.h"
#include "loadgen/report_html.h"
#include "loadgen/result_json.h"
#include "loadgen/run_info.h"
#include "model/make.h"
#include "model/model_folder.h"
#include "progress.h"
#include "serve_flags.h"
#include "sim/op_measures.h"
#include "sim/simulate.h"

namespace tandem {
namespace {

struct SimulateFlags {
  ServeFlags serve;
  bench::StreamFlags stream;
  std::vector<std::string> streams;
  std::string shape = "8B";
  std::string accelerator = "a100";
  std::string op_times;
  int32_t accelerators = 1;
  std::string accelerator_memory;
  double memory_share = 0.9;
  std::string host_kv;
  double host_gbps = 150;
  int32_t host_workers = 32;
  double link_gbps = 0;
  sim::BeliefError beliefs;
  std::string limit = "1440min";
  uint64_t load_seed = 1;
  std::string out;
};

struct KnownMemory {
  std::string_view accelerator;
  int64_t bytes;
};
constexpr int64_t kGigabyte = int64_t{1} << 30;
constexpr std::array kMemories = {
    KnownMemory{"a100", 80 * kGigabyte}, KnownMemory{"h100", 80 * kGigabyte},
    KnownMemory{"h200", 141 * kGigabyte}, KnownMemory{"t4", 16 * kGigabyte},
    KnownMemory{"a10", 24 * kGigabyte}};

Result<model::ModelConfig> shape_of(const std::string& name) {
  if (!std::filesystem::is_directory(name)) {
    return model::preset_config(name);
  }
  ASSIGN_OR_RETURN(const model::ModelFolder folder, model::open_model_folder(name));
  return folder.config;
}

// In place of the accelerator's formulae and memory.
Status take_measured(const SimulateFlags& flags, const model::ModelConfig& shape,
                     device::SimSpec& machine) {
  ASSIGN_OR_RETURN(const sim::MeasuredOps measured, sim::read_measured_ops(flags.op_times));
  if (measured.shape != sim::shape_of(shape)) {
    return invalid_argument(
        fmt::format("'{}' was measured with another model than --shape {}: measure this one by "
                    "`tandem profile FOLDER --op-times FILE`",
                    flags.op_times, flags.shape),
        "op-times");
  }
  if (flags.accelerators != 1) {
    return invalid_argument("--op-times is of one machine: leave --accelerators out",
                            "accelerators");
  }
  machine.name = measured.machine;
  machine.measured = measured.table;
  if (flags.accelerator_memory.empty()) {
    machine.memory_bytes =
        static_cast<int64_t>(static_cast<double>(measured.memory_bytes) * flags.memory_share);
  }
  return {};
}

Result<device::SimSpec> machine_of(const SimulateFlags& flags, const model::ModelConfig& shape) {
  const device::AcceleratorProfile* profile = device::find_profile(flags.accelerator);
  if (profile == nullptr) {
    return invalid_argument(
        fmt::format("--accelerator '{}' is none of {}", flags.accelerator, device::profile_names()),
        "accelerator");
  }
  int64_t each = 0;
  if (flags.accelerator_memory.empty()) {
    each = std::ranges::find(kMemories, profile->name, &KnownMemory::accelerator)->bytes;
  } else {
    ASSIGN_OR_RETURN(each, parse_bytes(flags.accelerator_memory));
  }
  device::SimSpec machine;
  machine.name = fmt::format("{} x {}", flags.accelerators, profile->name);
  machine.accelerator = *profile;
  machine.group.ranks = flags.accelerators;
  machine.memory_bytes =
      static_cast<int64_t>(static_cast<double>(each) * flags.memory_share) * flags.accelerators;
  machine.link_bytes =
      flags.link_gbps > 0 ? flags.link_gbps * 1e9 : profile->link_bytes * flags.accelerators;
  if (!flags.host_kv.empty()) {
    ASSIGN_OR_RETURN(machine.host_memory_bytes, parse_bytes(flags.host_kv));
  }
  if (!flags.op_times.empty()) {
    RETURN_IF_ERROR(take_measured(flags, shape, machine));
  }
  return machine;
}

Result<loadgen::Load> load_of(const SimulateFlags& flags) {
  ASSIGN_OR_RETURN(std::vector<loadgen::LoadStream> streams,
                   bench::make_streams(flags.stream, flags.streams));
  for (loadgen::LoadStream& stream : streams) {
    stream.models = {flags.shape};
  }
  return loadgen::make_load(streams, flags.load_seed);
}

loadgen::RunInfo info_of(const SimulateFlags& flags, cli::Command command,
                         const device::SimSpec& machine, const sim::Simulated& result) {
  loadgen::RunInfo info;
  info.tandem_version = TANDEM_VERSION;
  info.commit = kCommit;
  info.command = "tandem simulate";
  info.date = loadgen::iso_date();
  info.backend = "simulated";
  info.url = machine.name;
  info.model = flags.shape;
  info.request_rate = flags.stream.request_rate;
  info.burstiness = flags.stream.burstiness;
  info.machine = {{"simulated", machine.name},
                  {"memory_bytes", machine.memory_bytes},
                  {"link_bytes_per_second", machine.link_bytes},
                  {"host_memory_bytes", machine.host_memory_bytes},
                  {"host_gbps", flags.host_gbps},
                  {"host_workers", flags.host_workers},
                  {"steps", result.machine.steps()},
                  {"hops", result.tiers.hops},
                  {"visits", result.tiers.visits},
                  {"offloaded_bytes", result.tiers.offloaded_bytes},
                  {"attended_bytes", result.tiers.attended_bytes},
                  {"compute_busy", result.compute_busy}};
  for (const auto& [name, kind] : result.machine.kinds()) {
    info.machine["steps_by_kind"][name] = {{"steps", kind.steps},
                                           {"time_s", to_seconds(kind.time)},
                                           {"prompt_tokens", kind.prompt_tokens},
                                           {"decode_tokens", kind.decode_tokens},
                                           {"predicted_s", to_seconds(kind.predicted)},
                                           {"prediction_error_s", to_seconds(kind.error)}};
  }
  if (result.beliefs.has_value()) {
    info.machine["profile"]["virtual_s"] = to_seconds(result.profiled);
    const auto add = [&info](const char* name, const latency::Accuracy& met) {
      info.machine["profile"]["accuracy"][name] = {
          {"batches", met.batches}, {"mean", met.mean}, {"p90", met.p90}, {"p99", met.p99}};
    };
    add("modular", result.beliefs->modular);
    add("regression", result.beliefs->regression);
    add("table", result.beliefs->table);
  }
  info.server_config = nlohmann::ordered_json::parse(result.config);
  info.config = nlohmann::ordered_json::object();
  for (const cli::GivenOption& option : command.values()) {
    info.config[option.name] = option.given.empty()
                                   ? option.default_text
                                   : fmt::format("{}", fmt::join(option.given, " "));
  }
  return info;
}

Status write_results(const SimulateFlags& flags, const loadgen::RunInfo& info,
                     const loadgen::Load& load, const sim::Simulated& result,
                     const loadgen::Summary& summary) {
  if (flags.out.empty()) {
    return {};
  }
  std::error_code failure;
  std::filesystem::create_directories(flags.out, failure);
  const auto json =
      loadgen::result_json(info, load, result.run, summary, loadgen::Detail::kSummary);
  RETURN_IF_ERROR(loadgen::write_text(flags.out + "/result.json", json.dump(1) + "\n"));
  RETURN_IF_ERROR(loadgen::write_text(flags.out + "/report.html",
                                      loadgen::report_html(info, load, result.run, summary)));
  RETURN_IF_ERROR(
      loadgen::write_text(flags.out + "/machine.csv", sim::machine_csv(result.machine)));
  log::info("wrote {0}/result.json and {0}/report.html", flags.out);
  return {};
}

Status run_simulate(SimulateFlags& flags, cli::Command command) {
  RETURN_IF_ERROR(log::start(flags.serve.log_level));
  flags.serve.node.model = flags.shape;
  RETURN_IF_ERROR(resolve(flags.serve));
  if (flags.serve.node.accelerator.has_value()) {
    return Error{ErrorCode::kUnsupported,
                 "--emulate-accelerator plays an accelerator in real time; simulate has its own: "
                 "leave it out, and give --host-kv for a second tier",
                 "emulate-accelerator"};
  }
  sim::SimulateOptions options;
  ASSIGN_OR_RETURN(options.shape, shape_of(flags.shape));
  ASSIGN_OR_RETURN(options.machine, machine_of(flags, options.shape));
  options.host.bytes_per_second = flags.host_gbps * 1e9;
  options.host.workers = flags.host_workers;
  ASSIGN_OR_RETURN(options.limit, parse_duration(flags.limit));
  ASSIGN_OR_RETURN(const loadgen::Load load, load_of(flags));
  options.node = flags.serve.node;
  options.beliefs = flags.beliefs;
  options.node.targets_given =
      std::ranges::any_of(load.groups, [](const loadgen::RequestGroup& group) {
        return group.slo.ttft.has_value() || group.slo.tpot.has_value();
      });
  const SteadyClock clock;
  const Nanos began = clock.now();
  ProgressBar bar("simulating", clock);
  Result<sim::Simulated> simulated =
      sim::simulate(options, load, [&](const sim::SimulateProgress& progress) {
        bar.show(progress.ended, std::ssize(load.requests));
      });
  bar.finish();
  if (!simulated.ok()) {
    return simulated.error();
  }
  const Nanos took = clock.now() - began;
  const loadgen::RunInfo info = info_of(flags, command, options.machine, *simulated);
  const loadgen::Summary summary = loadgen::summarize(load, simulated->run);
  fmt::print("{} on {}, policy {}: {} of load in {} ({} steps, compute {:.0f} % busy)\n",
             flags.shape, options.machine.name, simulated->policy,
             format_duration(simulated->run.duration), format_duration(took),
             simulated->machine.steps(), simulated->compute_busy * 100);
  fmt::print("{}", bench::summary_text(summary, {"ttft", "tpot", "itl"}, {50, 99}));
  if (simulated->run.interrupted) {
    log::warn("the run reached its limit of {} (--limit) before all requests ended",
              format_duration(options.limit));
  }
  return write_results(flags, info, load, *simulated, summary);
}

}  // namespace

Subcommand add_simulate_command(cli::Command tandem) {
  auto flags = std::make_shared<SimulateFlags>();
  flags->serve.log_level = "warning";
  const cli::Command app = tandem.add_subcommand(
      "simulate", "Run a load on a simulated machine, in virtual time (docs/simulation.md)");
  app.add_option("--shape", flags->shape,
                 "Model: a preset of `tandem model make`, or a folder with config.json")
      .capture_default_str();
  app.add_option("--accelerator", flags->accelerator, "a100, h100, h200, t4 or a10")
      .capture_default_str();
  app.add_option("--op-times", flags->op_times,
                 "A measured machine in its place: a file of `tandem profile --op-times`");
  app.add_option("--accelerators", flags->accelerators,
                 "So many of them share the model (tensor parallelism)")
      .capture_default_str()
      .in_range(1, 64);
  app.add_option("--accelerator-memory", flags->accelerator_memory,
                 "Of each, e.g. 40GiB (default: what the type has)");
  app.add_option("--memory-share", flags->memory_share, "Of it that may be used")
      .capture_default_str()
      .in_range(0.01, 1.0);
  app.add_option("--host-kv", flags->host_kv,
                 "Memory of the host for KV of offloaded requests, e.g. 512GiB: two tiers");
  app.add_option("--host-gbps", flags->host_gbps, "GB/s at which its workers read KV")
      .capture_default_str()
      .in_range(1e-3, 1e6);
  app.add_option("--host-workers", flags->host_workers, "Its attention workers")
      .capture_default_str()
      .in_range(1, 4096);
  app.add_option("--link-gbps", flags->link_gbps,
                 "GB/s between the tiers, each direction (default: as the accelerators')")
      .in_range(1e-3, 1e6);
  app.add_option("--belief-factor", flags->beliefs.factor,
                 "The policy believes that ops take so many times their true time")
      .capture_default_str()
      .in_range(0.01, 100.0);
  app.add_option("--belief-noise", flags->beliefs.noise,
                 "Standard deviation of an op's time while the profile is measured, as a share")
      .capture_default_str()
      .in_range(0.0, 1.0);
  app.group_new_options("Machine");
  app.add_option("--stream", flags->streams,
                 "A stream of requests as key=value;key=value, with the flags below as keys; may "
                 "be repeated");
  app.add_option("--load-seed", flags->load_seed, "Of arrivals and lengths").capture_default_str();
  app.add_option("--limit", flags->limit, "The run ends after so much simulated time")
      .capture_default_str();
  app.add_option("-o,--out", flags->out, "Folder for result.json and report.html");
  app.group_new_options("Run");
  bench::add_stream_flags(app, flags->stream);
  app.group_new_options("Load");
  add_node_flags(app, flags->serve);
  app.add_option("--config", "YAML file with any of these flags as keys; flags given here win");
  return {app, [flags, app] {
            const Status status = run_simulate(*flags, app);
            if (!status.ok()) {
              log::error("{}", status.error().message);
              return status.error().code == ErrorCode::kInvalidArgument ? 2 : 1;
            }
            return 0;
          }};
}

}  // namespace tandem
