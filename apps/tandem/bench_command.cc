// `tandem bench kernels|model|loss|tiers|visits|scheduler|frontend|serve`: the parts of the server
// and a whole one, measured.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/units.h"
#include "bench/command_flags.h"
#include "bench/device_bench.h"
#include "bench/frontend_bench.h"
#include "bench/gemm_bench.h"
#include "bench/loss_bench.h"
#include "bench/model_bench.h"
#include "bench/scheduler_bench.h"
#include "bench/serve_bench.h"
#include "bench/tiers_bench.h"
#include "bench/visits_bench.h"
#include "cli/option_flags.h"
#include "commands.h"
#include "device/cpu/cpu_device.h"
#include "shared_options.h"
#include "version.h"

namespace tandem {
namespace {

struct BenchFlags {
  bench::BenchKernelsOptions kernels;
  NodeOptions kernels_machine;
  std::vector<std::string> isas;
  std::string kernels_device = "cpu";
  bench::DeviceBenchOptions device_kernels;
  std::vector<std::string> shapes;  // empty: the default
  std::vector<int64_t> rows;        // empty: the default
  bool quick = false;
  bench::BenchModelOptions model;
  std::string model_device = "cpu";
  bench::BenchLossOptions loss;
  bench::BenchFrontendOptions frontend;
  bench::ServeBenchFlags serve;
  bench::BenchTiersOptions tiers;
  std::string tiers_device = "auto";
  bench::BenchSchedulerOptions scheduler;
  bench::BenchVisitsOptions visits;
  std::optional<cli::Command> kernels_app;
  std::optional<cli::Command> model_app;
  std::optional<cli::Command> loss_app;
  std::optional<cli::Command> tiers_app;
  std::optional<cli::Command> scheduler_app;
  std::optional<cli::Command> visits_app;
};

// The weights' format of one run.
void add_quantization(cli::Command command, Quantization& quantization) {
  command
      .add_option_function<std::string>(
          "--quantization",
          [&quantization](const std::string& name) {
            quantization = *std::ranges::find(kQuantizations, name, quantization_name);
          },
          "Weights: none, int8, int4 or int4-symmetric (default: none)")
      .one_of({"none", "int8", "int4", "int4-symmetric"});
}

int refuse(const std::string& message) {
  fmt::print(stderr, "tandem: {}\n", message);
  return 2;
}

int run_device_kernels(BenchFlags& flags, device::AcceleratorSpec accelerator) {
  bench::DeviceBenchOptions& options = flags.device_kernels;
  options.accelerator = std::move(accelerator);
  if (!flags.shapes.empty()) {
    options.shapes = flags.shapes;
  }
  options.rows = flags.rows;
  options.passes = flags.kernels.passes;
  options.only = flags.kernels.only;
  options.json_path = flags.kernels.json_path;
  const bool tiny = std::ranges::find(options.shapes, "tiny") != options.shapes.end();
  options.sizes = tiny          ? bench::DeviceBenchSizes::kTiny
                  : flags.quick ? bench::DeviceBenchSizes::kQuick
                                : bench::DeviceBenchSizes::kAll;
  return bench::bench_device(options);
}

int run_kernels(BenchFlags& flags) {
  const auto accelerator = named_device(flags.kernels_device);
  if (!accelerator.ok()) {
    return refuse(accelerator.error().message);
  }
  if (accelerator->has_value()) {
    if (flags.kernels.quantization != Quantization::kNone ||
        flags.kernels.activations != Activations::kPlain) {
      return refuse(fmt::format(
          "--device {} has no products with quantised weights; leave out --quantization and "
          "--activations, or --device",
          flags.kernels_device));
    }
    return run_device_kernels(flags, **accelerator);
  }
  if (!flags.shapes.empty()) {
    const std::string& name = flags.shapes.front();
    if (flags.shapes.size() != 1 || (name != "1B" && name != "8B")) {
      return refuse("the CPU's kernels are measured with --shapes 1B or 8B");
    }
    flags.kernels.shapes = name == "8B" ? bench::shapes_8b() : bench::shapes_1b();
  }
  if (!flags.rows.empty()) {
    flags.kernels.rows = flags.rows;
  }
  if (flags.kernels.activations == Activations::kInt8 &&
      flags.kernels.quantization == Quantization::kNone) {
    return refuse("--activations int8 needs quantised weights; add --quantization int8");
  }
  for (const std::string& name : flags.isas) {
    const auto isa = kernels::parse_isa(name);
    if (!isa.ok()) {
      return refuse(isa.error().message);
    }
    flags.kernels.isas.push_back(*isa);
  }
  const int32_t threads = flags.kernels_machine.device.threads;
  flags.kernels.threads = threads > 0 ? threads : device::usual_threads(device::usable_nodes());
  return bench::bench_kernels(flags.kernels);
}

// 0, or the exit code if the device cannot be had.
int choose_device(const std::string& device, NodeOptions& node) {
  constexpr int64_t kHostBytes = int64_t{1} << 30;  // nothing is offloaded: queues only
  auto accelerator = named_device(device);
  if (!accelerator.ok()) {
    return refuse(accelerator.error().message);
  }
  node.accelerator = std::move(accelerator).value();
  if (node.accelerator.has_value() && node.host_memory_bytes == 0) {
    node.host_memory_bytes = kHostBytes;
  }
  return 0;
}

int run_bench(BenchFlags& flags) {
  if (flags.kernels_app->parsed()) {
    return run_kernels(flags);
  }
  if (flags.model_app->parsed()) {
    if (const int code = choose_device(flags.model_device, flags.model.node); code != 0) {
      return code;
    }
    flags.model.flags = bench::flags_json(*flags.model_app).dump();
    return bench::bench_model(flags.model);
  }
  if (flags.loss_app->parsed()) {
    flags.loss.flags = bench::flags_json(*flags.loss_app).dump();
    return bench::bench_loss(flags.loss);
  }
  if (flags.tiers_app->parsed()) {
    NodeOptions node;
    if (const int code = choose_device(flags.tiers_device, node); code != 0) {
      return code;
    }
    flags.tiers.accelerator = std::move(node.accelerator);
    flags.tiers.flags = bench::flags_json(*flags.tiers_app).dump();
    return bench::bench_tiers(flags.tiers);
  }
  if (flags.scheduler_app->parsed()) {
    return bench::bench_scheduler(flags.scheduler);
  }
  if (flags.visits_app->parsed()) {
    return bench::bench_visits(flags.visits);
  }
  if (flags.serve.command->parsed()) {
    return bench::bench_serve(flags.serve);
  }
  return bench::bench_frontend(flags.frontend);
}

void add_kernels_flags(cli::Command kernels, BenchFlags& flags) {
  kernels.add_option("--isa", flags.isas,
                     "Families to measure (default: the best of this machine)");
  cli::add_option(kernels, node_option(flags.kernels_machine, "threads"));
  kernels.add_option("--rows", flags.rows, "Rows M of the matrix products");
  kernels
      .add_option("--shapes", flags.shapes,
                  "Shapes of a layer: of a 1B or an 8B Llama (default: 1B); with --device of "
                  "presets of `tandem model make` (default: 8B 34B), tiny to try it out")
      .one_of({"tiny", "1B", "3B", "7B", "8B", "13B", "14B", "34B", "70B"});
  kernels
      .add_option("--device", flags.kernels_device,
                  "What to measure: cpu, or the ops of cuda, cuda:N or a back end's file")
      .capture_default_str();
  kernels.add_option_function<std::string>(
      "--device-memory",
      [&flags](const std::string& text) {
        const Result<int64_t> bytes = parse_bytes(text);
        if (!bytes.ok()) {
          cli::refuse("--device-memory", bytes.error().message);
        }
        flags.device_kernels.device_memory_bytes = *bytes;
      },
      "--device: memory that is taken there (default: 10GiB)");
  kernels.add_flag("--quick", flags.quick, "--device: a few rows of each kind, timed briefly");
  kernels
      .add_option("--limit", flags.device_kernels.limit_seconds,
                  "--device: seconds after which no further row is measured")
      .in_range(0.0, 1e6);
  add_quantization(kernels, flags.kernels.quantization);
  kernels
      .add_option_function<std::string>(
          "--activations",
          [&flags](const std::string& name) {
            flags.kernels.activations = name == "int8" ? Activations::kInt8 : Activations::kPlain;
          },
          "What products with quantised weights round activations to: auto (nothing), int8")
      .one_of({"auto", "int8"});
  kernels.add_option("--passes", flags.kernels.passes, "Passes; medians are shown")
      .capture_default_str();
  kernels.add_option("--only", flags.kernels.only,
                     "Only rows whose name holds this (\"ceilings\": those of the machine)");
  kernels.add_option("--json", flags.kernels.json_path, "Write the rows to this file too");
}

void add_device_flag(cli::Command command, std::string& device) {
  command.add_option("--device", device, "Where to run: cpu, cuda, cuda:N or a back end's file")
      .capture_default_str();
}

void add_model_flags(cli::Command model, BenchFlags& flags) {
  cli::add_option(model, model_option(flags.model.node)).required();
  model.add_option("--prompt", flags.model.prompt_tokens, "Prompt tokens")
      .capture_default_str()
      .positive();
  model.add_option("--output", flags.model.output_tokens, "Output tokens")
      .capture_default_str()
      .positive();
  model.add_option("--batch", flags.model.batches, "Sequences at a time")
      .capture_default_str()
      .positive();
  model.add_option("--passes", flags.model.passes, "Passes; medians are shown")
      .capture_default_str()
      .positive();
  add_device_flag(model, flags.model_device);
  add_node_options(model, flags.model.node,
                   {"threads", "numa", "isa", "quantization", "activations", "device-memory",
                    "host-memory", "max-num-batched-tokens", "profile"});
  model.add_flag("--ops", flags.model.with_ops, "Print the time of each kind of op in a step, too");
  model.add_option("--json", flags.model.json_path, "Write the rows to this file too");
}

void add_loss_flags(cli::Command loss, bench::BenchLossOptions& options) {
  cli::add_option(loss, model_option(options.node)).required();
  loss.add_option(
      "--text", options.text,
      "Text to score (default: drawn from the model itself with the first weights, bfloat16)");
  loss.add_option("--tokens", options.tokens, "Tokens of the text at most")
      .capture_default_str()
      .positive();
  loss.add_option("--context", options.context_tokens, "Tokens that are scored together")
      .capture_default_str()
      .in_range(2, 1 << 20);
  add_node_options(loss, options.node, {"threads", "numa", "isa", "activations"});
  loss.add_option("--json", options.json_path, "Write the rows to this file too");
}

}  // namespace

RunCommand describe_bench(cli::Command app) {
  auto flags = std::make_shared<BenchFlags>();
  flags->serve.version = kVersion;
  flags->serve.commit = kCommit;
  app.require_subcommand();

  const cli::Command kernels =
      app.add_subcommand("kernels", "Matrix products and attention beside this machine's ceilings");
  add_kernels_flags(kernels, *flags);

  const cli::Command model =
      app.add_subcommand("model", "Prompt and decode speed of a model through the engine");
  add_model_flags(model, *flags);

  const cli::Command loss = app.add_subcommand(
      "loss",
      "Loss and perplexity of a text with bfloat16 weights, the files' own and quantised ones");
  add_loss_flags(loss, flags->loss);

  const cli::Command frontend = app.add_subcommand(
      "frontend", "Streamed tokens per second of the HTTP server before a null model");
  frontend.add_option("--connections", flags->frontend.connections, "Clients that stream at a time")
      .capture_default_str();
  frontend.add_option("--tokens", flags->frontend.tokens, "Tokens of an answer")
      .capture_default_str();
  frontend.add_option("--requests", flags->frontend.requests, "Answers in all")
      .capture_default_str();
  bench::BenchCrowdOptions& crowd = flags->frontend.crowd;
  frontend.add_flag("--crowd", flags->frontend.with_crowd,
                    "Measure instead what a token waits among idle and refused clients");
  bench::BenchHostileOptions& hostile = flags->frontend.hostile;
  frontend.add_flag("--hostile", flags->frontend.with_hostile,
                    "Measure instead the longest stall of a stream beside the worst requests");
  frontend.add_option("--attackers", hostile.attackers, "--hostile: connections that attack")
      .capture_default_str()
      .in_range(1, 1000);
  frontend.add_option("--hostile-seconds", hostile.seconds, "--hostile: time of each attack")
      .capture_default_str()
      .in_range(0.1, 3600.0);
  frontend.add_option("--streams", crowd.streams, "--crowd: clients that stream")
      .capture_default_str()
      .in_range(1, 100000);
  frontend.add_option("--idle", crowd.idle, "--crowd: connections that do nothing")
      .capture_default_str()
      .in_range(0, 100000);
  frontend.add_option("--flooders", crowd.flooders, "--crowd: clients that are refused")
      .capture_default_str()
      .in_range(1, 100000);
  frontend.add_option("--interval-ms", crowd.interval_ms, "--crowd: time of a step")
      .capture_default_str()
      .in_range(0.1, 10000.0);
  frontend.add_option("--seconds", crowd.seconds, "--crowd: time of each of three phases")
      .capture_default_str()
      .in_range(0.1, 3600.0);

  bench::add_serve_bench_flags(
      app.add_subcommand("serve", "Put a load on a running OpenAI server and measure it"),
      flags->serve);
  flags->kernels_app = kernels;
  flags->scheduler_app =
      app.add_subcommand("scheduler", "Plans and verdicts of omniserve with many requests at hand");
  bench::add_scheduler_bench_flags(*flags->scheduler_app, flags->scheduler);
  flags->model_app = model;
  flags->loss_app = loss;
  flags->tiers_app = app.add_subcommand(
      "tiers", "Offloaded decode beside a paced, hollow accelerator, against its bound");
  bench::add_tiers_bench_flags(*flags->tiers_app, flags->tiers);
  flags->tiers_app->add_option("--device", flags->tiers_device,
                               "Run a model on cuda, cuda:N or a back end's file instead");
  flags->visits_app = app.add_subcommand(
      "visits", "What rows of offloaded tokens cost the engine's thread, without a device");
  bench::add_visits_bench_flags(*flags->visits_app, flags->visits);
  return [flags] { return run_bench(*flags); };
}

}  // namespace tandem
