#include "bench/visits_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "base/affinity.h"
#include "base/check.h"
#include "base/log.h"
#include "base/thread_time.h"
#include "bench/measuring.h"
#include "bench/null_device.h"
#include "cli/exit_code.h"
#include "device/cpu/machine.h"
#include "engine/engine.h"
#include "exec/forward_executor.h"
#include "model/make.h"
#include "model/weights.h"
#include "scheduler/policies/piggyback.h"
#include "scheduler/policies/registry.h"

namespace tandem::bench {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int32_t kPromptTokens = 16;
constexpr int32_t kOutputTokens = 2000;
constexpr int32_t kBlockTokens = 32;
constexpr Nanos kGroupTime = milliseconds(3);
constexpr int64_t kCacheLine = 64;

class StepCounter final : public observe::EngineObserver {
 public:
  void on_step(const observe::StepRecord& /*record*/) override { ++steps; }
  void on_gauges(const observe::EngineGauges& record) override { gauges = record; }
  void on_request(const observe::RequestRecord& /*record*/) override { ++ended; }

  int64_t steps = 0;
  int64_t ended = 0;
  observe::EngineGauges gauges;
};

// Of one step, or summed over several.
struct Cost {
  Nanos thread{0};  // that the engine's thread ran, in its calls
  Nanos wall{0};
  int64_t calls = 0;
};

double micros(Nanos time) { return static_cast<double>(time.count()) / 1e3; }

// Moved by hand; the workers have the machine's time.
class StandClock final : public Clock {
 public:
  [[nodiscard]] Nanos now() const override { return engine_.now(); }
  [[nodiscard]] std::shared_ptr<const Clock> for_threads() const override {
    return std::make_shared<const SteadyClock>();
  }
  void advance(Nanos by) { engine_.advance(by); }

 private:
  ManualClock engine_;
};

class Stand {
 public:
  static Result<std::unique_ptr<Stand>> create(const BenchVisitsOptions& options);

  Status fill();
  // One step's worth of calls, from the end of a step to the end of the next.
  Cost step();

  [[nodiscard]] const NullDeviceCounts& device_counts() const { return device_.counts(); }
  [[nodiscard]] TierCounts tier_counts() const { return executor_->tier_counts(); }
  [[nodiscard]] bool ended() const { return counter_.ended > 0; }

 private:
  explicit Stand(const BenchVisitsOptions& options);
  Status build();
  [[nodiscard]] ExecutorOptions executor_options() const;
  void post(ServiceClass service_class, int32_t count);
  void call(Cost& cost);
  void evict();
  void let_workers_end() const;

  const BenchVisitsOptions options_;
  NullDevice device_;
  model::ModelConfig shape_;
  model::Weights weights_;
  StandClock clock_;
  const SteadyClock real_;
  PolicyParts policy_;
  std::unique_ptr<Binder> binder_;
  std::unique_ptr<ForwardExecutor> executor_;
  StepCounter counter_;
  std::unique_ptr<Engine> engine_;
  EngineInputs inputs_;
  std::vector<char> others_;  // data
  int64_t next_request_ = 1;
};

std::vector<int32_t> worker_cpus() {
  const std::vector<int32_t> cpus = device::allowed_cpus();
  return {cpus.back()};
}

Stand::Stand(const BenchVisitsOptions& options)
    : options_(options),
      device_(worker_cpus()),
      others_(static_cast<size_t>(options.evict_mib) << 20U, 1) {}

Result<std::unique_ptr<Stand>> Stand::create(const BenchVisitsOptions& options) {
  std::unique_ptr<Stand> stand(new Stand(options));
  RETURN_IF_ERROR(stand->build());
  return stand;
}

ExecutorOptions Stand::executor_options() const {
  ExecutorOptions executor;
  const int32_t sequences = options_.residents + options_.offloaded;
  executor.max_batched_tokens = std::max(2048, sequences);
  executor.max_logit_rows = sequences;
  executor.block_tokens = kBlockTokens;
  executor.host = {.sequences = options_.offloaded,
                   .threads = 1,
                   .group_stages = options_.group_stages,
                   .hop_patience = std::chrono::hours(1),
                   .clock = &clock_,
                   .binder = binder_.get()};
  const int64_t blocks = int64_t{sequences} * ((kPromptTokens + kOutputTokens) / kBlockTokens + 2);
  executor.kv_bytes = blocks * kv_layout_for(shape_, executor).block_bytes();
  executor.host.kv_bytes = executor.kv_bytes;
  return executor;
}

Status Stand::build() {
  ASSIGN_OR_RETURN(shape_, model::preset_config("tiny"));
  shape_.layers = options_.layers;
  shape_.max_positions = kPromptTokens + kOutputTokens;
  weights_ = model::hollow_weights(shape_, {});
  PolicyOptions policy;
  policy[kOffloadBelow] = 100;  // always
  policy[kOnloadAbove] = 100;   // never
  ASSIGN_OR_RETURN(policy_, make_policy(kPiggyback.name, policy, {}));
  binder_ = policy_.make_binder();
  ASSIGN_OR_RETURN(executor_,
                   ForwardExecutor::create(shape_, weights_, device_, executor_options(), [] {}));
  EngineConfig config;
  config.max_running = options_.residents + options_.offloaded;
  config.max_model_len = shape_.max_positions;
  config.prefix_caching = PrefixCaching::kOff;
  engine_ = std::make_unique<Engine>(
      config,
      EngineParts{
          .executor = *executor_, .policy = *policy_.step, .clock = clock_, .observer = counter_});
  pin_this_thread(device::allowed_cpus().front());
  return {};
}

void Stand::post(ServiceClass service_class, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    Request request;
    request.service_class = service_class;
    request.prompt.resize(kPromptTokens);
    std::iota(request.prompt.begin(), request.prompt.end(), static_cast<TokenId>(i % 100));
    request.sampling.temperature = 0.0F;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = kOutputTokens;
    inputs_.emplace_back(Engine::make_arrival(RequestId{next_request_++}, std::move(request),
                                              clock_.now(), kBlockTokens));
  }
}

Status Stand::fill() {
  post(ServiceClass::kLatencySensitive, options_.residents);
  // A few in each step, so that they come to different stages and stay there.
  const int32_t stages = options_.layers + 1;
  for (int32_t i = 0; i < stages; ++i) {
    post(ServiceClass::kBestEffort,
         options_.offloaded * (i + 1) / stages - options_.offloaded * i / stages);
    step();
  }
  constexpr int kMostSteps = 100;
  for (int i = 0; i < kMostSteps && counter_.gauges.offloaded < options_.offloaded; ++i) {
    step();
  }
  if (counter_.gauges.offloaded < options_.offloaded) {
    return Error{ErrorCode::kInternal,
                 fmt::format("{} of {} sequences are offloaded", counter_.gauges.offloaded,
                             options_.offloaded),
                 ""};
  }
  // Everybody somewhere on the way: a token takes a step a stage.
  for (int32_t i = 0; i < 2 * options_.layers; ++i) {
    step();
  }
  return {};
}

void Stand::evict() {
  for (size_t i = 0; i < others_.size(); i += kCacheLine) {
    ++others_[i];
  }
}

// So that what comes back when does not depend on who else uses this machine.
void Stand::let_workers_end() const {
  constexpr microseconds kPause{20};
  do {
    std::this_thread::sleep_for(kPause);
  } while (executor_->tasks_in_hand() > 0);
}

void Stand::call(Cost& cost) {
  let_workers_end();
  evict();
  const Nanos wall = real_.now();
  const Nanos thread = thread_time();
  engine_->advance(clock_.now(), inputs_);
  cost.thread += thread_time() - thread;
  cost.wall += real_.now() - wall;
  ++cost.calls;
}

Cost Stand::step() {
  Cost cost;
  const int64_t before = counter_.steps;
  for (int groups = 0; counter_.steps == before && groups < 2 * options_.layers; ++groups) {
    for (int32_t i = 0; i < options_.wakes; ++i) {
      device_.tick_copies();
      clock_.advance(kGroupTime / (options_.wakes + 1));
      call(cost);
    }
    device_.tick();
    clock_.advance(kGroupTime / (options_.wakes + 1));
    call(cost);
  }
  return cost;
}

double part(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

// Figures of one run, per step.
struct Outcome {
  std::vector<double> thread_us;
  std::vector<double> wall_us;
  double calls = 0;
  double visits = 0;
  double ops = 0;
  double copies = 0;
  double events = 0;
  double waits = 0;
};

Result<Outcome> run(const BenchVisitsOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Stand> stand, Stand::create(options));
  RETURN_IF_ERROR(stand->fill());
  Outcome outcome;
  const NullDeviceCounts before = stand->device_counts();
  const int64_t visits = stand->tier_counts().visits;
  int64_t calls = 0;
  for (int32_t i = 0; i < options.steps; ++i) {
    const Cost cost = stand->step();
    outcome.thread_us.push_back(micros(cost.thread));
    outcome.wall_us.push_back(micros(cost.wall));
    calls += cost.calls;
  }
  if (stand->ended()) {
    return Error{ErrorCode::kInvalidArgument, "sequences ended meanwhile: fewer --steps", "steps"};
  }
  const NullDeviceCounts& after = stand->device_counts();
  const auto per_step = [&](int64_t sum) {
    return static_cast<double>(sum) / static_cast<double>(options.steps);
  };
  outcome.calls = per_step(calls);
  outcome.visits = per_step(stand->tier_counts().visits - visits);
  outcome.ops = per_step(after.ops - before.ops);
  outcome.copies = per_step(after.copies - before.copies);
  outcome.events = per_step(after.events - before.events);
  outcome.waits = per_step(after.waits - before.waits);
  return outcome;
}

nlohmann::ordered_json print_row(const char* name, const Outcome& outcome) {
  fmt::print(
      "{:16} {:>8.1f} {:>9.1f} {:>9.1f} {:>9.1f} {:>7.1f} {:>8.1f} {:>8.1f} {:>8.1f} {:>8.1f}\n",
      name, outcome.visits, part(outcome.thread_us, 0.5), part(outcome.thread_us, 0.9),
      part(outcome.wall_us, 0.5), outcome.calls, outcome.ops, outcome.copies, outcome.events,
      outcome.waits);
  return {
      {"visits", outcome.visits},
      {"thread_us",
       {{"median", part(outcome.thread_us, 0.5)}, {"p90", part(outcome.thread_us, 0.9)}}},
      {"wall_us", {{"median", part(outcome.wall_us, 0.5)}, {"p90", part(outcome.wall_us, 0.9)}}},
      {"calls", outcome.calls},
      {"ops", outcome.ops},
      {"copies", outcome.copies},
      {"events", outcome.events},
      {"waits", outcome.waits}};
}

Status measure(const BenchVisitsOptions& options) {
  BenchVisitsOptions alone = options;
  alone.offloaded = 1;
  ASSIGN_OR_RETURN(const Outcome residents, run(alone));
  ASSIGN_OR_RETURN(const Outcome visitors, run(options));
  fmt::print("{} layers in groups of {}, {} residents, {} offloaded; {} steps\n", options.layers,
             options.group_stages, options.residents, options.offloaded, options.steps);
  fmt::print("{:16} {:>8} {:>9} {:>9} {:>9} {:>7} {:>8} {:>8} {:>8} {:>8}\n", "a step", "visits",
             "cpu us", "P90", "wall us", "calls", "ops", "copies", "events", "waits");
  nlohmann::ordered_json json;
  json["one_offloaded"] = print_row("one offloaded", residents);
  json["all_offloaded"] = print_row("all offloaded", visitors);
  if (!options.json_path.empty()) {
    std::ofstream(options.json_path) << json.dump(1) << '\n';
  }
  return {};
}

}  // namespace

void add_visits_bench_flags(cli::Command command, BenchVisitsOptions& options) {
  command.add_option("--layers", options.layers, "Layers").capture_default_str().in_range(1, 1000);
  command.add_option("--group-stages", options.group_stages, "Layers launched together")
      .capture_default_str()
      .in_range(1, 1024);
  command.add_option("--residents", options.residents, "Sequences that decode on the accelerator")
      .capture_default_str()
      .in_range(1, 1024);
  command.add_option("--offloaded", options.offloaded, "Sequences that decode on the host")
      .capture_default_str()
      .in_range(1, 4096);
  command.add_option("--wakes", options.wakes, "Calls for hops alone, between two groups")
      .capture_default_str()
      .in_range(0, 100);
  command
      .add_option("--evict-mib", options.evict_mib,
                  "MiB of other data that the core touches before each call")
      .capture_default_str()
      .in_range(0, 1024);
  command.add_option("--steps", options.steps, "Steps that are measured")
      .capture_default_str()
      .in_range(2, 100000);
  command.add_option("--json", options.json_path, "Write the rows to this file too");
}

int bench_visits(const BenchVisitsOptions& options) {
  const Status status = measure(options);
  if (!status.ok()) {
    log::error("{}", status.error().message);
    return cli::exit_code_of(status.error().code);
  }
  return 0;
}

}  // namespace tandem::bench
