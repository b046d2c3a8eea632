#include "simulate_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/units.h"
#include "cli/option_flags.h"
#include "engine_flags.h"
#include "model/make.h"
#include "model/model_folder.h"
#include "shared_options.h"
#include "sim/engine_setup.h"
#include "sim/host_list.h"
#include "sim/op_measures.h"

namespace tandem {
namespace {

struct KnownMemory {
  std::string_view accelerator;
  int64_t bytes;
};
constexpr int64_t kGigabyte = int64_t{1} << 30;
constexpr std::array kMemories = {
    KnownMemory{"a100", 80 * kGigabyte},      KnownMemory{"h100", 80 * kGigabyte},
    KnownMemory{"h200", 141 * kGigabyte},     KnownMemory{"t4", 16 * kGigabyte},
    KnownMemory{"a10", 24 * kGigabyte},       KnownMemory{"xeon-6342", 512 * kGigabyte},
    KnownMemory{"xeon-8480", 512 * kGigabyte}};

// Options of the server that change nothing on a simulated machine.
struct RealMachineOption {
  std::string_view name;
  const char* instead;
};
constexpr const char* kSimulatedMachine = "the simulated machine is given by --accelerator";
constexpr const char* kSimulatedMemory =
    "the memory of the simulated machine is given by --accelerator-memory and --memory-share";
constexpr std::array kRealMachineOptions = {
    RealMachineOption{"served-model-name", "no client asks a simulated model; leave it out"},
    RealMachineOption{"activations", "it changes no time of a simulated step; leave it out"},
    RealMachineOption{"seed",
                      "a simulation draws no tokens; --load-seed is of arrivals and lengths"},
    RealMachineOption{"device-memory", kSimulatedMemory},
    RealMachineOption{"gpu-memory-utilization", kSimulatedMemory},
    RealMachineOption{"device", kSimulatedMachine},
    RealMachineOption{"threads", kSimulatedMachine},
    RealMachineOption{"numa", kSimulatedMachine},
    RealMachineOption{"isa", kSimulatedMachine},
    RealMachineOption{"emulate-accelerator",
                      "it plays an accelerator in real time, and simulate has its own; give "
                      "--host-kv for a second tier"},
    RealMachineOption{"host-memory", "the memory of a simulated host is given by --host-kv"},
    RealMachineOption{"timeline-out", "-o writes what a simulated machine did"}};

Error simulation_flag_error(const char* flag, const Error& error) {
  return {error.code, fmt::format("--{}: {}", flag, error.message), flag};
}

Result<model::ModelConfig> shape_of(const std::string& name) {
  if (!std::filesystem::exists(name)) {  // a folder or a GGUF file
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
  if (flags.accelerator_tflops > 0 || flags.accelerator_gbps > 0) {
    const char* flag = flags.accelerator_tflops > 0 ? "accelerator-tflops" : "accelerator-gbps";
    return invalid_argument(fmt::format("--op-times says what ops take: leave --{} out", flag),
                            flag);
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
    const Result<int64_t> given = parse_bytes(flags.accelerator_memory);
    if (!given.ok()) {
      return simulation_flag_error("accelerator-memory", given.error());
    }
    each = *given;
  }
  device::SimSpec machine;
  machine.name = fmt::format("{} x {}", flags.accelerators, profile->name);
  machine.accelerator = *profile;
  if (flags.accelerator_tflops > 0) {
    machine.accelerator.flops = flags.accelerator_tflops * 1e12;
    machine.accelerator.flops_share = 1;
    machine.name += fmt::format(", {:g} TFLOP/s", flags.accelerator_tflops);
  }
  if (flags.accelerator_gbps > 0) {
    machine.accelerator.memory_bytes = flags.accelerator_gbps * 1e9;
    machine.accelerator.memory_bytes_share = 1;
    machine.name += fmt::format(", {:g} GB/s", flags.accelerator_gbps);
  }
  machine.group.ranks = flags.accelerators;
  machine.memory_bytes =
      static_cast<int64_t>(static_cast<double>(each) * flags.memory_share) * flags.accelerators;
  machine.link_bytes =
      flags.link_gbps > 0 ? flags.link_gbps * 1e9 : profile->link_bytes * flags.accelerators;
  if (!flags.host_kv.empty()) {
    const Result<int64_t> given = parse_bytes(flags.host_kv);
    if (!given.ok()) {
      return simulation_flag_error("host-kv", given.error());
    }
    machine.host_memory_bytes = *given;
  }
  if (!flags.hosts.empty() && !flags.host_kv.empty()) {
    return invalid_argument(
        "--host-kv is the memory of one host, and --host lists hosts with their own: leave "
        "--host-kv "
        "out",
        "host-kv");
  }
  if (!flags.op_times.empty()) {
    RETURN_IF_ERROR(take_measured(flags, shape, machine));
  }
  if (flags.slowdown != 1) {
    machine.name += fmt::format(", {:g} times slower", flags.slowdown);
    machine.slowdown = flags.slowdown;
    machine.link_bytes /= flags.slowdown;
    machine.link_latency = Nanos{
        static_cast<int64_t>(static_cast<double>(machine.link_latency.count()) * flags.slowdown)};
  }
  return machine;
}

// `engines`: empty without --engine.
Result<loadgen::Load> load_of(const SimulateFlags& flags,
                              const std::vector<sim::EngineSetup>& engines) {
  bench::StreamFlags defaults = flags.stream;
  defaults.of_simulation = true;
  ASSIGN_OR_RETURN(std::vector<loadgen::LoadStream> streams,
                   bench::make_streams(defaults, flags.streams));
  for (loadgen::LoadStream& stream : streams) {
    if (stream.tasks != nullptr) {
      return invalid_argument(
          "--tasks: a simulation computes no answers; `tandem bench serve --tasks` asks a server",
          "tasks");
    }
    stream.models = {flags.shape};
  }
  RETURN_IF_ERROR(
      sim::check_streams(streams, engines.empty() ? std::vector<sim::EngineSetup>(1) : engines));
  ASSIGN_OR_RETURN(loadgen::Load load, loadgen::make_load(streams, flags.load_seed));
  if (!engines.empty()) {
    load.models_are_engines = true;
    load.models.clear();
    for (const sim::EngineSetup& engine : engines) {
      load.models.push_back(engine.name);
    }
  }
  return load;
}

bool has_targets(const loadgen::Load& load) {
  return std::ranges::any_of(load.groups, [](const loadgen::RequestGroup& group) {
    return group.slo.ttft.has_value() || group.slo.tpot.has_value();
  });
}

bool has_host(const sim::SimulateOptions& options) { return options.machine.host_memory_bytes > 0; }

}  // namespace

void add_machine_flags(cli::Command app, SimulateFlags& flags) {
  app.add_option("--shape", flags.shape,
                 "Model: a preset of `tandem model make`, or a folder with config.json")
      .capture_default_str();
  app.add_option("--accelerator", flags.accelerator,
                 "a100, h100, h200, t4 or a10; a host without one: xeon-6342 or xeon-8480")
      .capture_default_str();
  app.add_option("--op-times", flags.op_times,
                 "A measured machine in its place: a file of `tandem profile --op-times`");
  app.add_option("--accelerators", flags.accelerators,
                 "So many of them share the model (tensor parallelism)")
      .capture_default_str()
      .in_range(1, 64);
  app.add_option("--accelerator-memory", flags.accelerator_memory,
                 "Of each, e.g. 40GiB (default: what the type has)");
  app.add_option("--memory-share", flags.memory_share, "Of it that may be used")
      .capture_default_str()
      .in_range(0.01, 1.0);
  app.add_option("--accelerator-tflops", flags.accelerator_tflops,
                 "10^12 operations/s that its products reach (default: what the type has)")
      .in_range(1e-3, 1e6);
  app.add_option("--accelerator-gbps", flags.accelerator_gbps,
                 "GB/s at which it reads its memory (default: what the type has)")
      .in_range(1e-3, 1e6);
  app.add_option("--slowdown", flags.slowdown,
                 "The accelerators and their link are so many times slower")
      .capture_default_str()
      .in_range(0.001, 1e6);
  app.add_option("--host-kv", flags.host_kv,
                 "Memory of the host for KV of offloaded requests, e.g. 512GiB: two tiers");
  app.add_option("--host", flags.hosts,
                 "In its place, a host as key=value;key=value (kv, gbps, workers, latency, "
                 "link-gbps, count, pooled); may be repeated")
      .one_value_each();
  app.add_option("--host-gbps", flags.host_gbps, "GB/s at which its workers read KV")
      .capture_default_str()
      .in_range(1e-3, 1e6);
  app.add_option("--host-workers", flags.host_workers, "Its attention workers")
      .capture_default_str()
      .in_range(1, 4096);
  app.add_option("--link-gbps", flags.link_gbps,
                 "GB/s between the tiers, each direction (default: as the accelerators')")
      .in_range(1e-3, 1e6);
  app.add_option("--belief-factor", flags.beliefs.factor,
                 "The policy believes that ops take so many times their true time")
      .capture_default_str()
      .in_range(0.01, 100.0);
  app.add_option("--belief-host-factor", flags.beliefs.host, "The same of the hosts' attention")
      .capture_default_str()
      .in_range(0.01, 100.0);
  app.add_option("--belief-noise", flags.beliefs.noise,
                 "Standard deviation of an op's time while the profile is measured, as a share")
      .capture_default_str()
      .in_range(0.0, 1.0);
}

void add_simulated_node_flags(cli::Command app, ServeFlags& flags) {
  OptionTable table = node_flag_table(flags);
  for (const RealMachineOption& option : kRealMachineOptions) {
    std::erase_if(table, [&](const OptionDescriptor& row) { return row.name == option.name; });
  }
  cli::add_options(app, table);
  add_node_options(app, flags.node, {"max-queue", "max-queue-flex"});
  for (const RealMachineOption& option : kRealMachineOptions) {
    const std::string flag = fmt::format("--{}", option.name);
    app.add_option_function<std::string>(
           flag,
           [flag, &option](const std::string&) {
             cli::refuse(flag, fmt::format("it has no effect here: {}", option.instead));
           },
           "")
        .last_wins()
        .group("");
  }
}

cli::Command add_simulate_flags(cli::Command app, SimulateFlags& flags) {
  add_machine_flags(app, flags);
  app.add_option("--host-band", flags.host_band,
                 "The run is repeated with so much less and so much more bandwidth of the hosts, "
                 "e.g. 0.2 for 20 %: tables and plots show the band")
      .in_range(0.001, 0.99);
  app.add_option("--engine", flags.engines,
                 "One of several engines as key=value;key=value, with the flags of the machine and "
                 "the server as keys, and name, serves, shares-host; may be repeated "
                 "(docs/several-engines.md)")
      .one_value_each();
  app.group_new_options("Machine");
  app.add_option("--stream", flags.streams,
                 "A stream of requests as key=value;key=value, with the flags below as keys; may "
                 "be repeated")
      .one_value_each();
  app.add_option("--load-seed", flags.load_seed, "Of arrivals and lengths").capture_default_str();
  app.add_option("--limit", flags.limit, "The run ends after so much simulated time")
      .capture_default_str();
  app.add_option("-o,--out", flags.out,
                 "Folder for result.json, summary.csv, report.html and plots; of a sweep for its "
                 "table, page, plots and points");
  app.add_option("--jobs", flags.jobs, "Points of a sweep that run at a time (default: all cores)")
      .in_range(1, 4096);
  cli::add_option(app, log_level_option(flags.serve.log_level));
  app.add_option("scenario,--config", flags.scenario,
                 "YAML file with any of these flags as keys, and with `vary` for a sweep; flags "
                 "given here win");
  app.group_new_options("Run");
  bench::add_stream_flags(app, flags.stream);
  app.group_new_options("Load");
  add_simulated_node_flags(app, flags.serve);
  app.let_last_win();
  return app;
}

Result<sim::SimulateOptions> plan_engine(SimulateFlags& flags) {
  flags.serve.node.model = flags.shape;
  RETURN_IF_ERROR(resolve(flags.serve));
  sim::SimulateOptions options;
  ASSIGN_OR_RETURN(options.shape, shape_of(flags.shape));
  ASSIGN_OR_RETURN(options.machine, machine_of(flags, options.shape));
  options.hosts.front().bytes_per_second = flags.host_gbps * 1e9;
  options.hosts.front().workers = flags.host_workers;
  if (!flags.hosts.empty()) {
    const sim::SimHostSpec defaults = options.hosts.front();
    ASSIGN_OR_RETURN(sim::HostList listed, sim::parse_hosts(flags.hosts, defaults));
    options.hosts = std::move(listed.hosts);
    options.machine.host_memory_bytes = listed.kv_bytes;
  }
  if (has_host(options) && options.machine.accelerator.is_host) {
    return invalid_argument(
        fmt::format("--accelerator {} is a host itself and has no second tier: leave --{} out",
                    flags.accelerator, flags.hosts.empty() ? "host-kv" : "host"),
        flags.hosts.empty() ? "host-kv" : "host");
  }
  options.node = flags.serve.node;
  options.node.memory_flags = {.device = "accelerator-memory",
                               .host = flags.hosts.empty() ? "host-kv" : "host"};
  options.beliefs = flags.beliefs;
  return options;
}

Result<PlannedRun> plan_run(SimulateFlags& flags) {
  PlannedRun run;
  if (flags.engines.empty()) {
    ASSIGN_OR_RETURN(run.options, plan_engine(flags));
  } else {
    ASSIGN_OR_RETURN(run.engines, plan_engines(flags));
  }
  const bool any_host =
      run.engines.empty() ? has_host(run.options)
                          : std::ranges::any_of(run.engines, has_host, &sim::EngineSetup::options);
  if (flags.host_band > 0 && !any_host) {
    return invalid_argument(
        "--host-band varies the bandwidth of a host, and there is none: give --host-kv or "
        "--host, or leave it out",
        "host-band");
  }
  const Result<Nanos> limit = parse_duration(flags.limit);
  if (!limit.ok()) {
    return simulation_flag_error("limit", limit.error());
  }
  run.options.limit = *limit;
  Result<loadgen::Load> load = load_of(flags, run.engines);
  if (!load.ok()) {
    Error error = load.error();
    error.param =
        flags.streams.empty() || error.param.starts_with("stream") ? error.param : "stream";
    return error;
  }
  run.load = *std::move(load);
  run.options.node.targets_given = has_targets(run.load);
  for (sim::EngineSetup& engine : run.engines) {
    engine.options.node.targets_given = has_targets(run.load);
  }
  return run;
}

}  // namespace tandem
