#include "node/instance.h"

#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "node/config_json.h"
#include "node/record_file.h"
#include "node/time_profile.h"
#include "scheduler/policies/registry.h"

namespace tandem {
namespace {

ServedModel served_model(const NodeOptions& options, const PlannedModel& model) {
  ServedModel served;
  served.names = options.served_names;
  const std::filesystem::path path = std::filesystem::weakly_canonical(options.model);
  const bool is_file = path.extension() == ".gguf";
  served.root = (is_file ? path.stem() : path.filename()).string();
  if (served.names.empty()) {
    served.names = {served.root};
  }
  struct stat info {};
  if (::stat((is_file ? path : path / "config.json").c_str(), &info) == 0) {
    served.created_unix_seconds = info.st_mtime;
  }
  served.max_model_len = model.plan.max_model_len;
  served.vocabulary = model.folder.config.vocabulary;
  served.max_choices = running_sequences(options);
  served.reads = policy_traits(model.policy_name).reads;
  return served;
}

}  // namespace

Instance::Instance(NodeOptions options, PlannedModel model, const Clock& clock)
    : options_(std::move(options)), clock_(clock), model_(std::move(model)) {
  ServedModel served = served_model(options_, model_);
  metrics_ = std::make_unique<observe::EngineMetrics>(observe::EngineMetricsOptions{
      .model_name = served.names.front(),
      .vllm_names = options_.vllm_metrics,
      .block_tokens = model_.plan.block_tokens,
      .total_blocks = model_.plan.kv_blocks,
      .host_blocks = model_.plan.host.kv_blocks,
      .clock = &clock_,
      .predicted = wants_profile(options_) ? observe::Predicted::kYes : observe::Predicted::kNo,
      .admission = options_.admission == AdmissionMode::kOn && policy_traits(options_.policy).admits
                       ? observe::Admits::kYes
                       : observe::Admits::kNo});
  metrics_->on_gauges(
      {.total_blocks = model_.plan.kv_blocks, .host_blocks = model_.plan.host.kv_blocks});
  thread_ = std::make_unique<EngineThread>(
      std::move(served),
      EngineThreadOptions{.max_queue = options_.max_queue,
                          .max_queue_flex = options_.max_queue_flex,
                          .block_tokens = model_.plan.block_tokens},
      clock_, [this](const std::string& reason) { metrics_->on_rejected(reason); });
}

Result<std::unique_ptr<Instance>> Instance::create(NodeOptions options, PlannedModel model,
                                                   const Clock& clock) {
  std::unique_ptr<Instance> instance(new Instance(std::move(options), std::move(model), clock));
  const PlannedModel& planned = instance->model_;
  if (!needs_measuring(instance->options_, planned)) {
    RETURN_IF_ERROR(
        instance->start_recording(planned.profile.has_value() ? &*planned.profile : nullptr));
  }
  return instance;
}

// A record begins with what the policy knows, so it is written once that is known.
Status Instance::start_recording(const latency::Profile* profile) {
  if (options_.record_out.empty() || recorder_ != nullptr) {
    return {};
  }
  ASSIGN_OR_RETURN(recorder_, RecordFile::create(options_.record_out, options_.record_limit_bytes,
                                                 record_head(options_, model_, profile)));
  return {};
}

Status Instance::load(const std::function<void(const model::LoadProgress&)>& progress,
                      const latency::ProfileProgress& profile_progress) {
  measuring_ = needs_measuring(options_, model_);
  Result<Running> running = prepare(progress, profile_progress);
  if (!running.ok()) {
    thread_->set_failed();
    return running.error();
  }
  running_ = std::move(running).value();
  measuring_ = false;
  thread_->start(make_engine());
  return {};
}

Result<Instance::Running> Instance::prepare(
    const std::function<void(const model::LoadProgress&)>& progress,
    const latency::ProfileProgress& profile_progress) {
  Running running;
  ASSIGN_OR_RETURN(running.loaded, load_model(model_, progress, [this] {
                     if (measuring_) {
                       bell_.ring();
                     } else {
                       thread_->step_completed();
                     }
                   }));
  NodeOptions measured = options_;
  ASSIGN_OR_RETURN(running.scheduled, complete_model(measured, model_, *running.loaded, bell_,
                                                     clock_, profile_progress));
  {
    const std::lock_guard lock(measured_mutex_);
    options_.policy_options = measured.policy_options;
  }
  RETURN_IF_ERROR(start_recording(running.scheduled.profile.get()));
  if (recorder_ != nullptr && running.loaded->binder != nullptr) {
    running.loaded->binder->record_to(*recorder_);
  }
  return running;
}

std::unique_ptr<Engine> Instance::make_engine() {
  const ScheduledModel& scheduled = running_->scheduled;
  return std::make_unique<Engine>(
      engine_config(options_, model_, scheduled.profile.get()),
      EngineParts{.executor = *running_->loaded->executor,
                  .policy = *scheduled.policy.step,
                  .clock = clock_,
                  .observer = *metrics_,
                  .recorder = recorder_ != nullptr ? *recorder_ : no_recorder(),
                  .step_times = scheduled.step_times.get(),
                  .host_times = scheduled.host_times.get(),
                  .admission = options_.admission == AdmissionMode::kOn
                                   ? scheduled.policy.admission.get()
                                   : nullptr});
}

void Instance::stop() {
  thread_->shutdown();
  running_.reset();
}

std::string Instance::metrics_text() const {
  if (const std::optional<observe::PaceRecord> pace = model_.device.pace()) {
    metrics_->on_pace(*pace);
  }
  return metrics_->render() + observe::accelerator_metrics_text(model_.device.device().readings());
}

std::string Instance::status_json() const {
  const auto quoted = [](const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  return R"({"name":)" + quoted(thread_->model().names.front()) + R"(,"policy":)" +
         quoted(model_.policy_name) + R"(,"metrics":)" + metrics_->json() + "}";
}

std::string Instance::config_json() const {
  const std::lock_guard lock(measured_mutex_);
  return effective_config_json(options_, model_);
}

}  // namespace tandem
