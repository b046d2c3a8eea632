#include "sim/simulated_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "latency/batch.h"
#include "node/config_json.h"
#include "node/engine_meter.h"
#include "node/node_device.h"
#include "node/policy_choice.h"
#include "sim/engine_setup.h"
#include "workload/random.h"

namespace tandem::sim {
namespace {

constexpr double kLeastPace = 0.01;  // no noise makes a time negative

// The sums of `now` without those of `before`.
TierCounts since(const TierCounts& before, TierCounts now) {
  now.visits -= before.visits;
  now.hops -= before.hops;
  now.doubted -= before.doubted;
  now.bytes_to_host -= before.bytes_to_host;
  now.bytes_from_host -= before.bytes_from_host;
  now.offloaded_bytes -= before.offloaded_bytes;
  now.onloaded_bytes -= before.onloaded_bytes;
  now.attended_bytes -= before.attended_bytes;
  now.attended_rows -= before.attended_rows;
  now.attention_time -= before.attention_time;
  now.returning_time -= before.returning_time;
  return now;
}

std::function<double()> pace_of(const BeliefError& error) {
  if (error.factor == 1 && error.noise == 0) {
    return {};
  }
  return [error, random = workload::Random(error.seed)]() mutable {
    return error.factor * std::max(kLeastPace, 1 + error.noise * random.normal());
  };
}

// Measures three steps: a prompt of up to 512 tokens, one decode behind such a prompt, and the
// largest number of these decodes together.
Result<EngineSpeed> speed_of(latency::BatchMeter& meter) {
  constexpr int32_t kTokens = 512;
  constexpr int32_t kMinContext = 3;
  const latency::BatchLimits limits = meter.limits();
  if (limits.context < kMinContext) {
    return EngineSpeed{};  // no prompt with a decode after it can be measured
  }
  const int32_t tokens = std::min({kTokens, limits.rows, limits.context - 1});
  const int64_t sequence_tokens = latency::pool_tokens({.contexts = {tokens}}, limits.block_tokens);
  const int64_t decodes = std::clamp<int64_t>(limits.tokens / sequence_tokens, 1,
                                              std::min(limits.sequences, limits.rows));
  const std::vector<int32_t> contexts(static_cast<size_t>(decodes), std::max(tokens, 2));
  ASSIGN_OR_RETURN(const Nanos prompt,
                   meter.measure({.prompts = {{.rows = tokens, .logits = 1}}, .contexts = {}}));
  ASSIGN_OR_RETURN(const Nanos sole,
                   meter.measure({.prompts = {}, .contexts = {contexts.front()}}));
  ASSIGN_OR_RETURN(const Nanos full, meter.measure({.prompts = {}, .contexts = contexts}));
  return EngineSpeed{
      .prompt_token = prompt / tokens, .full_decode = full / decodes, .sole_decode = sole};
}

}  // namespace

Status SimulatedEngine::plan() {
  node_ = options_.node;
  node_.memory_bytes = options_.machine.memory_bytes;
  node_.profile.cache_folder.clear();
  if (options_.machine.host_memory_bytes > 0) {
    node_.accelerator = device::AcceleratorSpec{.backend = "sim", .hollow = true};
    node_.host_memory_bytes = options_.machine.host_memory_bytes;
  }
  device::SimSpec machine = options_.machine;
  machine.vocabulary = options_.shape.vocabulary;
  model::ModelFolder folder;
  folder.config = options_.shape;
  auto device = std::make_unique<device::SimDevice>(time_, machine);
  simulated_ = device.get();
  if (bandwidth_ != nullptr && computes_on_host(options_.machine)) {
    simulated_->share(*bandwidth_);
  }
  simulated_->watch_compute([this](Nanos begin, Nanos end) { sides_.accelerator.add(begin, end); });
  ASSIGN_OR_RETURN(SoleModel planned,
                   plan_model(std::move(folder), NodeDevice::of(std::move(device)), node_, time_));
  planned_ = std::make_unique<SoleModel>(std::move(planned));
  warn_of_options_without_effect(node_);
  return {};
}

Status SimulatedEngine::prepare() {
  if (options_.machine.host_memory_bytes > 0) {
    HostTierOptions& host = planned_->model.plan.executor.host;
    host.attention = [this](const piggyback::AttentionSpec& spec) {
      auto made = std::make_unique<SimHosts>(time_, options_.hosts, spec);
      made->set_pace(options_.beliefs.host);
      if (bandwidth_ != nullptr) {
        made->share(*bandwidth_);
      }
      made->watch([this](Nanos begin, Nanos end) { sides_.host.add(begin, end); });
      // While a profile is measured there is no engine, and no sequence of it ends.
      made->set_stays([this](SequenceId id) {
        return !driver_.has_value() || driver_->engine().is_on_host(id);
      });
      hosts_ = made.get();
      return Result<std::unique_ptr<piggyback::AttentionHost>>(std::move(made));
    };
  }
  const PlannedModel& model = planned_->model;
  ASSIGN_OR_RETURN(loaded_, load_model(model, {}, [this] {
                     if (driver_.has_value()) {
                       driver_->completed();
                     } else {
                       bell_.ring();
                     }
                   }));
  const Nanos began = time_.now();
  simulated_->set_pace(pace_of(options_.beliefs));
  ASSIGN_OR_RETURN(scheduled_, complete_model(node_, model, *loaded_, bell_, time_, {}));
  simulated_->set_pace({});
  if (hosts_ != nullptr) {
    hosts_->set_pace(1);
  }
  profiled_ = time_.now() - began;
  return {};
}

Result<EngineSpeed> SimulatedEngine::measure_speed() {
  EngineMeter meter({.vocabulary = options_.shape.vocabulary,
                     .max_model_len = planned_->model.plan.max_model_len,
                     .max_running = running_sequences(node_)},
                    *loaded_->executor, bell_, time_);
  simulated_->set_pace(pace_of(options_.beliefs));
  Result<EngineSpeed> speed = speed_of(meter);
  simulated_->set_pace({});
  return speed;
}

void SimulatedEngine::start() {
  const PlannedModel& model = planned_->model;
  driver_.emplace(time_, options_.engine,
                  EngineDriver::Bounds{.max_queue = node_.max_queue,
                                       .max_queue_flex = node_.max_queue_flex,
                                       .max_model_len = model.plan.max_model_len,
                                       .block_tokens = model.plan.block_tokens});
  driver_->start(
      engine_config(node_, model, scheduled_.profile.get()),
      {.executor = *loaded_->executor,
       .policy = *scheduled_.policy.step,
       .clock = time_,
       .observer = log_,
       .step_times = scheduled_.step_times.get(),
       .host_times = scheduled_.host_times.get(),
       .admission =
           node_.admission == AdmissionMode::kOn ? scheduled_.policy.admission.get() : nullptr});
}

void SimulatedEngine::begin() {
  counted_ = loaded_->executor->tier_counts();
  log_.begin(time_, sides_, joins_in_cohorts(node_) ? "overlap" : "piggyback", counted_);
}

EngineOutcome SimulatedEngine::finish(Nanos took) {
  EngineOutcome outcome;
  outcome.policy =
      node_.profile.error_percent == 0
          ? node_.policy
          : fmt::format("{}, time model {:+}%", node_.policy, node_.profile.error_percent);
  outcome.config = effective_config_json(node_, planned_->model);
  outcome.tiers = since(counted_, loaded_->executor->tier_counts());
  outcome.profiled = profiled_;
  if (scheduled_.profile != nullptr) {
    outcome.profile = *scheduled_.profile;
  }
  log_.end();
  driver_->end();
  // The log leaves out work that was launched and had not run by then.
  const Nanos worked = log_.busy().accelerator;
  outcome.compute_busy = took > Nanos{0} ? to_seconds(worked) / to_seconds(took) : 0;
  outcome.machine = std::move(log_);
  return outcome;
}

}  // namespace tandem::sim
