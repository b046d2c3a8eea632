#include "bench/scheduler_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "engine/engine.h"
#include "latency/corrected_model.h"
#include "latency/modular_model.h"
#include "scheduler/policies/omniserve.h"
#include "scheduler/policies/registry.h"

namespace tandem::bench {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int32_t kPromptTokens = 400;
constexpr int32_t kLinePromptTokens = 900;
constexpr int32_t kStepTokens = 2048;
constexpr milliseconds kStepTime{15};  // about what the model of time says
constexpr int kMaxStepsToFill = 100000;

// A step's samples are token 7, at once.
class InstantExecutor final : public StepExecutor {
 public:
  explicit InstantExecutor(const ExecutorLimits& limits) : limits_(limits) {}
  [[nodiscard]] const ExecutorLimits& limits() const override { return limits_; }
  void launch(const StepInput& input) override {
    step_ = input.step;
    sampled_.clear();
    for (const StepSlice& slice : input.slices) {
      for (const SampleSpec& spec : slice.samples) {
        sampled_.push_back(spec.sequence);
      }
    }
    running_ = true;
  }
  [[nodiscard]] bool poll(StepResult& result) override {
    if (!std::exchange(running_, false)) {
      return false;
    }
    result.step = step_;
    result.samples.clear();
    result.scored.clear();
    result.visitors.clear();
    for (const SequenceId sequence : sampled_) {
      result.samples.push_back({sequence, TokenId{7}, nullptr});
    }
    return true;
  }
  void leave(SequenceId /*offloaded*/) override {}
  [[nodiscard]] TierEvents take_tier_events() override { return {}; }
  [[nodiscard]] TierCounts tier_counts() const override { return {}; }

 private:
  ExecutorLimits limits_;
  std::vector<SequenceId> sampled_;
  int64_t step_ = 0;
  bool running_ = false;
};

using Micros = std::vector<double>;

double micros(Nanos time) { return static_cast<double>(time.count()) / 1000; }

class TimedPolicy final : public StepPolicy {
 public:
  TimedPolicy(StepPolicy& policy, Micros& took) : policy_(policy), took_(took) {}
  [[nodiscard]] std::string_view name() const override { return policy_.name(); }
  [[nodiscard]] std::unique_ptr<QueueOrder> make_queue_order() const override {
    return policy_.make_queue_order();
  }
  [[nodiscard]] bool reads_stages() const override { return policy_.reads_stages(); }
  StepPlan plan(const SystemView& view) override {
    const Nanos began = clock_.now();
    StepPlan plan = policy_.plan(view);
    took_.push_back(micros(clock_.now() - began));
    return plan;
  }

 private:
  StepPolicy& policy_;
  Micros& took_;
  const SteadyClock clock_;
};

// Like a 7B model on an accelerator: a ladder of tiles, and attention by contexts.
latency::CorrectedModel step_times() {
  std::vector<latency::LadderPoint> points;
  for (int32_t rows = 1; rows <= kStepTokens; rows *= 2) {
    points.push_back({rows, 4e6 + 8e3 * rows});
  }
  latency::ModularCosts costs;
  costs.layers = 32;
  costs.fixed = 3e5;
  Result<latency::Ladder> dense = latency::Ladder::through(points);
  CHECK(dense.ok(), "{}", dense.error().message);
  costs.dense = *dense;
  costs.first_stage_share = 1.0 / 32;
  costs.head = *latency::Ladder::through({{1, 2e4}, {1024, 5e5}});
  costs.prefill = {.per_pair = 2, .per_row = 100, .per_slice = 2000, .fixed = 1e4};
  costs.decode = {.per_context = 4, .per_row = 300, .fixed = 1e4};
  Result<latency::ModularModel> model = latency::ModularModel::create(std::move(costs));
  CHECK(model.ok(), "{}", model.error().message);
  return latency::CorrectedModel(std::make_unique<latency::ModularModel>(*std::move(model)));
}

Request request(int32_t prompt_tokens, ServiceClass service_class, int64_t first) {
  Request made;
  made.prompt.resize(static_cast<size_t>(prompt_tokens));
  std::iota(made.prompt.begin(), made.prompt.end(), static_cast<TokenId>(first % 1000000));
  made.sampling.max_tokens = 4000;
  made.sampling.ignore_eos = true;
  made.service_class = service_class;
  if (service_class == ServiceClass::kLatencySensitive) {
    made.slo = {.ttft = TtftRule{.base = seconds(600)}, .tpot = milliseconds(20)};
  }
  return made;
}

class Stand {
 public:
  explicit Stand(const BenchSchedulerOptions& options)
      : options_(options),
        limits_{.max_batched_tokens = kStepTokens,
                .max_logit_rows = options.running + options.line + 1,
                .total_blocks = int64_t{options.running + options.line} * 160,
                .block_tokens = 32},
        executor_(limits_),
        times_(step_times()),
        inner_(make_inner(times_)),
        policy_(*inner_.step, plans),
        engine_(config(options), {.executor = executor_,
                                  .policy = policy_,
                                  .clock = clock_,
                                  .step_times = &times_,
                                  .admission = inner_.admission.get()}) {}

  // Half of them latency sensitive, which begin last, because best effort would wait for the time
  // that they leave; steps until all decode.
  void fill() {
    for (const ServiceClass service_class : {kBe, kLs}) {
      const int32_t half = options_.running / 2;
      for (int32_t i = 0; i < (service_class == kBe ? half : options_.running - half); ++i) {
        post(request(kPromptTokens, service_class, next_ * 131));
      }
      for (int i = 0; i < kMaxStepsToFill && (i == 0 || engine_.load().waiting > 0); ++i) {
        step();
      }
    }
    for (int i = 0; i < 200; ++i) {
      step();
    }
    for (int32_t i = 0; i < options_.waiting - options_.line; ++i) {
      post(request(kPromptTokens, kBe, next_ * 131));
    }
    step();
  }

  // One step, before which the line is as long as it is to be.
  void step() {
    clock_.set(clock_.now() + kStepTime);
    CHECK(engine_.advance(clock_.now(), inputs_).activity != EngineActivity::kIdle,
          "nothing is left to do");
  }
  void renew_line() {
    while (in_line_ < options_.line) {
      post(request(kLinePromptTokens, kLs, next_ * 131));
      ++in_line_;
    }
  }

  // What a verdict takes; nobody comes in.
  std::pair<Nanos, AdmissionVerdict> ask(Nanos ttft) {
    Request asking = request(kLinePromptTokens, kLs, ++next_ * 131);
    asking.slo.ttft = TtftRule{.base = ttft};
    Arrival arrival = Engine::make_arrival(RequestId{++next_}, std::move(asking), clock_.now(), 32);
    const Nanos began = real_.now();
    const AdmissionVerdict verdict = engine_.consider(arrival, clock_.now()).verdict;
    return {real_.now() - began, verdict};
  }
  [[nodiscard]] EngineLoad load() const { return engine_.load(); }

  Micros plans;

 private:
  static PolicyParts make_inner(const latency::CorrectedModel& times) {
    return make_policy(kOmniServe.name, {}, {.step_times = &times}).value();
  }
  static EngineConfig config(const BenchSchedulerOptions& options) {
    EngineConfig made;
    // The line has to wait for places, so that it stays as long as it is.
    made.max_running = options.running;
    made.max_model_len = 4500;
    return made;
  }
  void post(Request made) {
    inputs_.emplace_back(
        Engine::make_arrival(RequestId{++next_}, std::move(made), clock_.now(), 32));
  }

  const BenchSchedulerOptions options_;
  const ExecutorLimits limits_;
  InstantExecutor executor_;
  latency::CorrectedModel times_;
  PolicyParts inner_;
  TimedPolicy policy_;
  ManualClock clock_;
  const SteadyClock real_;
  Engine engine_;
  EngineInputs inputs_;
  int64_t next_ = 1;
  int32_t in_line_ = 0;
};

double share(Micros values, double part) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[static_cast<size_t>(part * double(values.size() - 1))];
}

}  // namespace

void add_scheduler_bench_flags(cli::Command command, BenchSchedulerOptions& options) {
  command.add_option("--running", options.running, "Sequences that run, half of each class")
      .capture_default_str()
      .in_range(2, 1800);
  command.add_option("--waiting", options.waiting, "Requests that wait")
      .capture_default_str()
      .in_range(1, 100000);
  command.add_option("--line", options.line, "Of these, latency-sensitive prompts with targets")
      .capture_default_str()
      .in_range(0, 10000);
  command
      .add_option("--two-tier-running", options.two_tiers.running,
                  "Sequences that decode on the accelerator where there are two tiers")
      .capture_default_str()
      .in_range(1, 1024);
  command
      .add_option("--two-tier-offloaded", options.two_tiers.offloaded,
                  "Sequences on the host beside them")
      .capture_default_str()
      .in_range(1, 10000);
  command.add_option("--steps", options.steps, "Steps that are measured")
      .capture_default_str()
      .in_range(2, 100000);
  command.add_option("--json", options.json_path, "Write the rows to this file too");
}

int bench_scheduler(const BenchSchedulerOptions& options) {
  Stand stand(options);
  stand.fill();
  stand.renew_line();
  stand.step();
  stand.plans.clear();
  Micros fast;
  Micros first;
  Micros again;
  int64_t accepted = 0;
  std::string refused;
  for (int32_t i = 0; i < options.steps; ++i) {
    stand.step();
    if (i % 2 == 0) {
      fast.push_back(micros(stand.ask(milliseconds(1)).first));
      continue;
    }
    const auto [took, verdict] = stand.ask(seconds(600));
    first.push_back(micros(took));
    if (verdict.answer == AdmissionAnswer::kRefuse) {
      refused = fmt::format(", others refused ({})", reason_name(verdict.reason));
    }
    accepted += verdict.answer == AdmissionAnswer::kAccept ? 1 : 0;
    again.push_back(micros(stand.ask(seconds(600)).first));
  }
  const EngineLoad load = stand.load();
  if (load.running * 20 < int64_t{options.running} * 19) {  // some may begin anew
    log::error("only {} of {} sequences run: more do not fit the targets; lower --running",
               load.running, options.running);
    return 1;
  }
  fmt::print("{} running, {} waiting, {} of these in the line; {} of {} asks accepted{}\n\n",
             load.running, load.waiting, options.line, accepted, first.size(), refused);
  fmt::print("{:44} {:>10} {:>10} {:>10}\n", "us", "median", "P90", "P99");
  nlohmann::ordered_json json;
  const auto row = [&](const char* name, const Micros& values) {
    fmt::print("{:44} {:>10.1f} {:>10.1f} {:>10.1f}\n", name, share(values, 0.5),
               share(values, 0.9), share(values, 0.99));
    json[name] = {
        {"median", share(values, 0.5)}, {"p90", share(values, 0.9)}, {"p99", share(values, 0.99)}};
  };
  row("plan of a step", stand.plans);
  row("verdict by closed form, first of a step", fast);
  row("verdict by replay, first of a step", first);
  row("verdict by replay, later in a step", again);
  fmt::print("\ntwo tiers: {} on the accelerator, {} on the host, half of these under way\n",
             options.two_tiers.running, options.two_tiers.offloaded);
  TwoTierPlansOptions two_tiers = options.two_tiers;
  two_tiers.steps = options.steps;
  for (const TwoTierPlans& plans : measure_two_tier_plans(two_tiers)) {
    row(fmt::format("plan of a step, {}", plans.policy).c_str(), plans.micros);
  }
  if (!options.json_path.empty()) {
    std::ofstream(options.json_path) << json.dump(1) << '\n';
  }
  return 0;
}

}  // namespace tandem::bench
