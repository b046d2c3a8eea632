#include "bench/tiers_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "bench/measuring.h"
#include "cli/exit_code.h"
#include "device/open/open.h"
#include "model/make.h"
#include "model/model_folder.h"
#include "model/weights.h"
#include "scheduler/policies/piggyback.h"
#include "scheduler/policies/registry.h"

namespace tandem::bench {
namespace {

constexpr double kCalibrationSeconds = 1.0;
constexpr Nanos kSettle = std::chrono::milliseconds(300);  // until tokens in hand came back
constexpr Nanos kAdmission = std::chrono::seconds(1);      // about the time to offload sequences
constexpr Nanos kRefill = std::chrono::seconds(1);         // until tokens are on their way again

// What one run found.
struct Outcome {
  double slowdown = 1;
  TiersWindow alone;
  TiersWindow alone_after;  // residents alone again at the end, with grown contexts
  std::vector<TiersWindow> live;
  std::vector<TiersWindow> frozen;
  std::string device;
  int32_t host_cores = 1;  // that attend
  std::string config;      // effective, one JSON object
};

TiersBound bound_for(const BenchTiersOptions& options, const TiersWindow& live, int32_t layers,
                     double link_bytes_per_second) {
  return bound_of(live, {.layers = layers,
                         .offloaded = options.load.offloaded,
                         .host_cores = options.host_cores,
                         .link_bytes_per_second = link_bytes_per_second});
}

// The machine is not the same from window to window, so each is held against its own bound.
double share_of_bound(const BenchTiersOptions& options, const Outcome& outcome, int32_t layers,
                      double link_bytes_per_second) {
  std::vector<double> shares;
  for (const TiersWindow& live : outcome.live) {
    shares.push_back(live.hops / layers /
                     bound_for(options, live, layers, link_bytes_per_second).least());
  }
  std::ranges::sort(shares);
  return shares[shares.size() / 2];
}

// Tokens that an offloaded sequence may get while it is measured, at a token in layers + 1 steps.
int32_t generated(const BenchTiersOptions& options, const model::ModelConfig& shape) {
  constexpr double kBeside = 20;  // seconds before and between the windows
  const double run_seconds = kBeside + options.rounds * (2 * options.seconds + 2);
  const double step_seconds = options.step_ms > 0 ? options.step_ms * 1e-3 : 5e-3;
  const double tokens = run_seconds / ((shape.layers + 1) * step_seconds);
  return static_cast<int32_t>(std::min<double>(tokens, options.load.output));
}

Result<NodeOptions> node_options(const BenchTiersOptions& options, const model::ModelConfig& shape,
                                 double slowdown) {
  NodeOptions node;
  node.accelerator = options.accelerator;
  node.model = options.model;
  std::string spec = fmt::format("pace={},hollow,cores={},host-cores={},slowdown={}", options.pace,
                                 options.cores, options.host_cores, slowdown);
  if (options.link_gbps > 0) {
    spec += fmt::format(",link-gbps={}", options.link_gbps);
  }
  if (!options.accelerator.has_value()) {
    ASSIGN_OR_RETURN(node.accelerator, device::accelerator_spec(device::kEmulatedBackend, spec));
  }
  node.policy = options.policy;
  node.policy_options[kOffloadBelow] = 100;  // always
  node.policy_options[kOnloadAbove] = 100;   // never
  node.group_stages = options.group_stages;
  const TiersLoad& load = options.load;
  node.max_num_seqs = load.residents + load.offloaded;
  node.max_num_batched_tokens = std::max(2048, node.max_num_seqs + 64);
  node.max_model_len = shape.max_positions;
  node.timeline_out = options.timeline_path;
  // Of a hollow device's memory next to nothing is touched, so it may be as large as a real one's.
  const int64_t token_bytes = model::kv_bytes_per_token(shape, ElementType::kBF16);
  node.memory_bytes = model::weight_bytes(shape, {}) + 8 * kGiB +
                      int64_t{node.max_num_seqs} * node.max_model_len * token_bytes;
  if (options.accelerator.has_value()) {
    node.memory_bytes = options.device_memory_bytes;
  }
  // A block or two more for each: its tail, and what it generates meanwhile.
  const int64_t host_tokens =
      int64_t{load.offloaded} * (load.offloaded_prompt + generated(options, shape) + 64);
  node.host_memory_bytes = host_tokens * token_bytes + kGiB;
  return node;
}

// How much slower than its profile the accelerator must be for a step of residents to take so long.
Result<double> calibrate(const BenchTiersOptions& options, const model::ModelConfig& shape) {
  if (options.step_ms <= 0) {
    return 1.0;
  }
  double slowdown = 1.0;
  BenchTiersOptions alone = options;
  alone.load.offloaded = 1;
  alone.timeline_path.clear();
  // Twice: what does not slow down with it (waking threads, launching) is a part of the step too.
  for (int pass = 0; pass < 2; ++pass) {
    ASSIGN_OR_RETURN(NodeOptions node, node_options(alone, shape, slowdown));
    node.host_memory_bytes = kGiB;  // none is offloaded
    ASSIGN_OR_RETURN(const std::unique_ptr<TiersRun> run,
                     TiersRun::create(shape, node, alone.load));
    RETURN_IF_ERROR(run->admit_residents());
    ASSIGN_OR_RETURN(const TiersWindow window,
                     run->measure(Nanos{static_cast<int64_t>(kCalibrationSeconds * 1e9)}));
    slowdown *= options.step_ms * 1e-3 / window.step_seconds;
    if (slowdown < 1) {
      return invalid_argument(
          fmt::format("a step of {} residents takes {:.2f} ms on {} as it is; --step-ms {} is "
                      "faster than that: choose a longer one, another --pace or fewer --residents",
                      options.load.residents, window.step_seconds * 1e3, options.pace,
                      options.step_ms),
          "step-ms");
    }
  }
  return slowdown;
}

Result<Outcome> measure(const BenchTiersOptions& options, const model::ModelConfig& shape) {
  Outcome outcome;
  ASSIGN_OR_RETURN(outcome.slowdown, calibrate(options, shape));
  ASSIGN_OR_RETURN(const NodeOptions node, node_options(options, shape, outcome.slowdown));
  ASSIGN_OR_RETURN(const std::unique_ptr<TiersRun> run,
                   TiersRun::create(shape, node, options.load));
  outcome.device = run->model().device.caps().name;
  outcome.config = run->config();
  outcome.host_cores = options.host_cores;
  if (options.accelerator.has_value()) {
    outcome.host_cores = static_cast<int32_t>(run->model().device.device().host().cpus.size());
  }
  const Nanos window{static_cast<int64_t>(options.seconds * 1e9)};
  const Nanos beside = options.rounds * (window + kSettle + window / 2 + kRefill);
  const Nanos after = kSettle + window;
  RETURN_IF_ERROR(run->admit_residents());
  run->expect_windows(window + kAdmission + beside + after);
  ASSIGN_OR_RETURN(outcome.alone, run->measure(window));
  fmt::print(stderr, "residents alone: {:.2f} ms a step\n", outcome.alone.step_seconds * 1e3);
  RETURN_IF_ERROR(run->admit_offloaded());
  run->expect_windows(beside + after);
  for (int32_t round = 0; round < options.rounds; ++round) {
    ASSIGN_OR_RETURN(const TiersWindow live, run->measure(window));
    run->freeze_host();
    RETURN_IF_ERROR(run->measure(kSettle));
    ASSIGN_OR_RETURN(const TiersWindow frozen, run->measure(window / 2));
    run->thaw_host();
    RETURN_IF_ERROR(run->measure(kRefill));
    fmt::print(stderr,
               "round {} of {}: {:.1f} best-effort tokens/s, {:.2f} ms a step; frozen {:.2f}\n",
               round + 1, options.rounds, live.hops / shape.layers, live.step_seconds * 1e3,
               frozen.step_seconds * 1e3);
    outcome.live.push_back(live);
    outcome.frozen.push_back(frozen);
  }
  RETURN_IF_ERROR(run->dismiss_offloaded());
  RETURN_IF_ERROR(run->measure(kSettle));
  ASSIGN_OR_RETURN(outcome.alone_after, run->measure(window));
  return outcome;
}

// A step's time divided by that of residents alone: by the cost model's times if the device has a
// model, else at equal contexts.
double as_alone(const Outcome& outcome, const TiersWindow& window) {
  return outcome.alone.over_model > 0
             ? window.over_model / outcome.alone.over_model
             : window.step_seconds / alone_seconds(window, outcome.alone, outcome.alone_after);
}

double as_alone(const Outcome& outcome, const std::vector<TiersWindow>& windows) {
  std::vector<double> all;
  for (const TiersWindow& window : windows) {
    all.push_back(as_alone(outcome, window));
  }
  return median_of(std::move(all));
}

void print_steps(const char* what, const TiersWindow& window, double as_alone) {
  fmt::print(
      "  {:<18} {:>9.3f} {:>9.3f} {:>9.3f} {:>11.3f} {:>14.3f} {:>10.1f} {:>10.1f} {:>8.1f} "
      "{:>9.2f} %\n",
      what, window.step_seconds * 1e3, window.mean_step_seconds() * 1e3,
      window.modelled_seconds * 1e3, window.over_model, as_alone, window.engine_seconds * 1e6,
      window.advance_seconds * 1e6, window.advances, window.overrun_share * 100);
}

void print_outcome(const BenchTiersOptions& options, const model::ModelConfig& shape,
                   const Outcome& outcome, double link) {
  const TiersWindow live = medians(outcome.live);
  const TiersWindow frozen = medians(outcome.frozen);
  const TiersBound bound = bound_for(options, live, shape.layers, link);
  const double tokens = live.hops / shape.layers;
  fmt::print("{} shape, {} layers; {}\n", options.shape, shape.layers, outcome.device);
  fmt::print(
      "slowdown {:.3f}; {} residents of {} tokens, {} offloaded of {}; policy {}, groups of "
      "{}; {} windows of {} s\n",
      outcome.slowdown, options.load.residents, options.load.resident_prompt,
      options.load.offloaded, options.load.offloaded_prompt, options.policy, options.group_stages,
      options.rounds, options.seconds);
  fmt::print("  {:<18} {:>9} {:>9} {:>9} {:>11} {:>14} {:>10} {:>10} {:>8} {:>11}\n", "", "step ms",
             "mean", "modelled", "over model", "as alone", "engine us", "in calls", "calls",
             "overruns");
  print_steps("residents alone", outcome.alone, 1);
  print_steps("with visitors", live, as_alone(outcome, outcome.live));
  print_steps("host frozen", frozen, as_alone(outcome, outcome.frozen));
  print_steps("alone, at the end", outcome.alone_after, as_alone(outcome, outcome.alone_after));
  fmt::print("  best effort: {:.1f} tokens/s = {:.3f} of the bound {:.1f}; regime: {}\n", tokens,
             share_of_bound(options, outcome, shape.layers, link), bound.least(), bound.regime());
  fmt::print("  bounds: sequences {:.1f}, host bandwidth {:.1f}, link {:.1f} tokens/s\n",
             bound.sequences, bound.host_bandwidth, bound.link);
  fmt::print(
      "  visitors a stage {:.2f}; hops in flight {:.1f}; {:.2f} MB attended a hop; workers at "
      "{:.2f} GB/s, busy {:.0f} %\n",
      live.visits * live.mean_step_seconds() / (shape.layers + 1), live.hops_in_flight,
      live.attended_bytes * 1e-6, live.host_rate * 1e-9, 100 * live.host_busy / options.host_cores);
  if (live.seconds < 0.9 * options.seconds) {
    fmt::print(
        "  windows ended after {:.2f} s instead of {}: a sequence has room for {} tokens "
        "(--output, the model's context)\n",
        live.seconds, options.seconds, options.load.output);
  }
  const double overruns =
      std::max({outcome.alone.overrun_share, live.overrun_share, frozen.overrun_share});
  if (overruns > device::kMaxOverrunShare) {
    fmt::print(
        "  INVALID: {:.1f} % of the ops ended later than modelled, more than {:.0f} %: this "
        "machine cannot play the accelerator so fast\n",
        100 * overruns, 100 * device::kMaxOverrunShare);
  }
}

nlohmann::ordered_json window_json(const Outcome& outcome, const TiersWindow& window) {
  return {{"seconds", window.seconds},
          {"steps", window.steps},
          {"middle_step", window.middle_step},
          {"as_alone", as_alone(outcome, window)},
          {"step_seconds", window.step_seconds},
          {"over_model", window.over_model},
          {"modelled_seconds", window.modelled_seconds},
          {"engine_seconds", window.engine_seconds},
          {"advance_seconds", window.advance_seconds},
          {"advances_per_step", window.advances},
          {"visits_per_second", window.visits},
          {"hops_per_second", window.hops},
          {"hop_bytes_out_per_second", window.hop_bytes_out},
          {"hop_bytes_back_per_second", window.hop_bytes_back},
          {"attended_bytes_per_hop", window.attended_bytes},
          {"host_bytes_per_second", window.host_rate},
          {"host_busy", window.host_busy},
          {"hops_in_flight", window.hops_in_flight},
          {"overrun_share", window.overrun_share}};
}

Status write_json(const BenchTiersOptions& options, const model::ModelConfig& shape,
                  const Outcome& outcome, double link) {
  const TiersWindow live = medians(outcome.live);
  const TiersBound bound = bound_for(options, live, shape.layers, link);
  nlohmann::ordered_json json = {
      {"hollow", !options.accelerator.has_value()},
      {"config", nlohmann::ordered_json::parse(outcome.config)},
      {"flags", nlohmann::ordered_json::parse(options.flags)},
      {"shape", options.shape},
      {"layers", shape.layers},
      {"device", outcome.device},
      {"slowdown", outcome.slowdown},
      {"link_bytes_per_second", link},
      {"policy", options.policy},
      {"group_stages", options.group_stages},
      {"residents", options.load.residents},
      {"resident_prompt", options.load.resident_prompt},
      {"offloaded", options.load.offloaded},
      {"offloaded_prompt", options.load.offloaded_prompt},
      {"best_effort_tokens_per_second", live.hops / shape.layers},
      {"bound_tokens_per_second", bound.least()},
      {"share_of_bound", share_of_bound(options, outcome, shape.layers, link)},
      {"bounds",
       {{"sequences", bound.sequences},
        {"host_bandwidth", bound.host_bandwidth},
        {"link", bound.link}}},
      {"regime", bound.regime()},
      {"residents_alone", window_json(outcome, outcome.alone)},
      {"residents_alone_after", window_json(outcome, outcome.alone_after)}};
  for (const TiersWindow& window : outcome.live) {
    json["with_visitors"].push_back(window_json(outcome, window));
  }
  for (const TiersWindow& window : outcome.frozen) {
    json["host_frozen"].push_back(window_json(outcome, window));
  }
  std::ofstream file(options.json_path);
  file << json.dump(1) << "\n";
  file.flush();
  return file.good() ? Status{}
                     : Status{Error{ErrorCode::kIo,
                                    fmt::format("cannot write '{}'", options.json_path), "json"}};
}

// Of a preset, or of the model that a device runs.
Result<model::ModelConfig> shape_of(BenchTiersOptions& options) {
  TiersLoad& load = options.load;
  const int32_t prompt = std::max(load.resident_prompt, load.offloaded_prompt);
  if (!options.accelerator.has_value()) {
    ASSIGN_OR_RETURN(model::ModelConfig shape, model::preset_config(options.shape));
    shape.vocabulary = std::min(shape.vocabulary, options.vocabulary);
    shape.max_positions = prompt + load.output;
    return shape;
  }
  if (options.model.empty() || options.step_ms > 0) {
    return invalid_argument(
        "--device runs a real model at its own pace: give --model DIR, and no --step-ms",
        options.model.empty() ? "model" : "step-ms");
  }
  ASSIGN_OR_RETURN(model::ModelFolder folder, model::open_model_folder(options.model));
  model::ModelConfig shape = std::move(folder.config);
  shape.max_positions = std::min(shape.max_positions, prompt + load.output);
  load.output = shape.max_positions - prompt;
  if (load.output <= 0) {
    return invalid_argument(
        fmt::format("prompts of {} tokens leave no room in a context of {}; use shorter prompts",
                    prompt, shape.max_positions),
        "resident-prompt");
  }
  options.shape = options.model.filename().string();
  return shape;
}

Status run_bench(BenchTiersOptions options) {
  constexpr double kAssumedLink = 50e9;  // bytes/s, PCIe 5: the default of the bound
  ASSIGN_OR_RETURN(const model::ModelConfig shape, shape_of(options));
  ASSIGN_OR_RETURN(const Outcome outcome, measure(options, shape));
  options.host_cores = outcome.host_cores;
  ASSIGN_OR_RETURN(const NodeOptions node, node_options(options, shape, outcome.slowdown));
  // What slows the accelerator down slows its link down, too.
  double link = node.accelerator->link_bytes_per_second / outcome.slowdown;
  if (options.accelerator.has_value()) {
    link = options.link_gbps > 0 ? options.link_gbps * 1e9 : kAssumedLink;
  }
  print_outcome(options, shape, outcome, link);
  return options.json_path.empty() ? Status{} : write_json(options, shape, outcome, link);
}

}  // namespace

void add_tiers_bench_flags(cli::Command app, BenchTiersOptions& options) {
  TiersLoad& load = options.load;
  app.add_option("--shape", options.shape, "Model shape: a preset of `tandem model make`")
      .capture_default_str();
  app.add_option("--pace", options.pace, "Accelerator to keep pace with: a100, h100, h200, t4, a10")
      .capture_default_str();
  app.add_option("--model", options.model, "--device: the model that it runs");
  app.add_option_function<std::string>(
      "--device-memory",
      [&options](const std::string& text) {
        const Result<int64_t> bytes = parse_bytes(text);
        if (!bytes.ok()) {
          cli::refuse("--device-memory", bytes.error().message);
        }
        options.device_memory_bytes = *bytes;
      },
      "--device: memory for weights and KV (default: most of its free memory)");
  app.add_option("--step-ms", options.step_ms,
                 "Slow the pace down until a step of residents alone takes so long")
      .in_range(0.01, 10000.0);
  app.add_option("--link-gbps", options.link_gbps,
                 "GB/s between the tiers, each way (default: the accelerator's)")
      .in_range(0.001, 1000.0);
  app.add_option("--cores", options.cores, "Cores that play the accelerator and run the engine")
      .capture_default_str()
      .in_range(1, 4096);
  app.add_option("--host-cores", options.host_cores, "Cores that attend on the host")
      .capture_default_str()
      .in_range(1, 4096);
  std::vector<std::string> names;
  std::string help = "How offloaded tokens join:";
  for (const PolicyDescriptor* policy : policies()) {
    if (!policy->traits.plain_join) {
      continue;
    }
    names.emplace_back(policy->name);
    help += fmt::format("{} {} ({})", names.size() == 1 ? "" : ",", policy->name, policy->summary);
  }
  app.add_option("--policy", options.policy, help).capture_default_str().one_of(names);
  app.add_option("--group-stages", options.group_stages, "Layers launched together")
      .capture_default_str()
      .in_range(1, 1024);
  app.add_option("--residents", load.residents, "Latency-sensitive sequences on the accelerator")
      .capture_default_str()
      .in_range(1, 4096);
  app.add_option("--resident-prompt", load.resident_prompt, "Prompt tokens of each")
      .capture_default_str()
      .in_range(1, 1 << 17);
  app.add_option("--offloaded", load.offloaded, "Best-effort sequences on the host")
      .capture_default_str()
      .in_range(1, 4096);
  app.add_option("--offloaded-prompt", load.offloaded_prompt, "Prompt tokens of each")
      .capture_default_str()
      .in_range(1, 1 << 17);
  app.add_option("--output", load.output, "Tokens that a sequence has room for")
      .capture_default_str()
      .in_range(1, 1 << 17);
  app.add_option("--seconds", options.seconds,
                 "Of a window at most: no sequence ends while it is measured")
      .capture_default_str()
      .in_range(0.1, 3600.0);
  app.add_option("--rounds", options.rounds, "Windows with the host at work and frozen, in turn")
      .capture_default_str()
      .in_range(1, 1000);
  app.add_option("--vocab", options.vocabulary,
                 "Words of the shape at most: sampling is real, and takes this machine longer than "
                 "an accelerator")
      .capture_default_str()
      .in_range(256, 1 << 20);
  app.add_option("--timeline-out", options.timeline_path,
                 "Write what ran when (the last spans of each stream and worker) for Perfetto");
  app.add_option("--json", options.json_path, "Write all windows to this file too");
}

int bench_tiers(const BenchTiersOptions& options) {
  const Status status = run_bench(options);
  if (!status.ok()) {
    log::error("{}", status.error().message);
    return cli::exit_code_of(status.error().code);
  }
  return 0;
}

}  // namespace tandem::bench
