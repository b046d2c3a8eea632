#include "node/node.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "base/affinity.h"
#include "base/log.h"
#include "base/units.h"
#include "device/emulated/emulated_accelerator.h"
#include "node/engine_meter.h"
#include "node/policy_choice.h"
#include "node/record_file.h"
#include "node/run_kernels.h"

namespace tandem {
namespace {

constexpr int64_t kSpansPerTrack = 1 << 16;  // the last ones are kept

ElementType choose_dtype(const NodeOptions& options, const model::ModelConfig& config) {
  if (options.dtype.has_value()) {
    return *options.dtype;
  }
  if (config.checkpoint_type == ElementType::kF16) {
    log::warn(
        "the checkpoint is float16: weights run as bfloat16, with 3 bits less precision; --dtype "
        "float32 "
        "keeps them exactly");
    return ElementType::kBF16;
  }
  return config.checkpoint_type;
}

// Sequences that run at a time. Each that decodes needs a row of every step, and visitors need some
// beside them; with fewer rows the newest sequences would never have a turn.
int32_t running_sequences(const NodeOptions& options) {
  const int32_t rows = options.max_num_batched_tokens;
  const int32_t most = std::min(options.max_num_seqs, rows);
  return options.emulation.has_value() ? std::clamp(rows - visitor_logit_rows(most), 1, most)
                                       : most;
}

ServedModel served_model(const NodeOptions& options, const ModelOnDevice& parts) {
  ServedModel model;
  model.names = options.served_names;
  const std::filesystem::path folder = std::filesystem::weakly_canonical(options.model);
  model.root = folder.filename().string();
  if (model.names.empty()) {
    model.names = {model.root};
  }
  struct stat info {};
  if (::stat((folder / "config.json").c_str(), &info) == 0) {
    model.created_unix_seconds = info.st_mtime;
  }
  model.max_model_len = parts.plan.max_model_len;
  model.vocabulary = parts.folder.config.vocabulary;
  model.max_choices = running_sequences(options);
  model.reads = policy_reads(parts.policy_name);
  return model;
}

// The threads that this one starts from here on, and what they touch, stay where compute is.
void stay_on_nodes(const device::DeviceCaps& caps) {
  std::vector<int32_t> cpus;
  for (const device::NodeUse& node : caps.nodes) {
    cpus.insert(cpus.end(), node.cpus.begin(), node.cpus.end());
  }
  if (!cpus.empty()) {
    pin_this_thread(cpus);
  }
}

Status open_device(const NodeOptions& options, const RunKernels& run, ModelOnDevice& parts) {
  if (!options.emulation.has_value()) {
    device::CpuDeviceOptions device = options.device;
    device.isa = run.choice;
    device.products = run.products;
    ASSIGN_OR_RETURN(parts.device, device::make_cpu_device(device));
    if (options.device.numa.mode == device::NumaMode::kNodes) {
      stay_on_nodes(parts.device->caps());
    }
    return {};
  }
  if (options.memory_bytes == 0 || options.host_memory_bytes == 0) {
    return invalid_argument(
        "an emulated accelerator needs the sizes of both memories: give --device-memory and "
        "--host-memory, e.g. --device-memory 4GiB --host-memory 8GiB",
        options.memory_bytes == 0 ? "device-memory" : "host-memory");
  }
  ASSIGN_OR_RETURN(
      std::unique_ptr<device::EmulatedAccelerator> device,
      device::make_emulated_accelerator({.spec = *options.emulation,
                                         .device_memory_bytes = options.memory_bytes,
                                         .host_memory_bytes = options.host_memory_bytes,
                                         .isa = run.choice,
                                         .products = run.products,
                                         .timeline = parts.timeline.get()}));
  parts.emulated = device.get();
  parts.device = std::move(device);
  return {};
}

// Null where nothing is paced.
const device::EmulatedAccelerator* paced_device(const NodeOptions& options,
                                                const ModelOnDevice& parts) {
  const bool paced =
      options.emulation.has_value() && options.emulation->link_bytes_per_second() > 0;
  return paced ? dynamic_cast<const device::EmulatedAccelerator*>(parts.device.get()) : nullptr;
}

observe::PaceRecord pace_of(const device::EmulatedAccelerator& device) {
  const device::EmulationStatistics sums = device.statistics();
  return {.ops = sums.ops(), .overruns = sums.overruns()};
}

// A figure from a run whose ops took longer than the accelerator that is played is no figure.
void report_pace(const NodeOptions& options, const device::EmulatedAccelerator& device) {
  const observe::PaceRecord pace = pace_of(device);
  const double share = device.statistics().overrun_share();
  const std::string text =
      fmt::format("paced run ({}): {} of {} ops ended later than modelled ({:.3f} %)",
                  device::describe_pace(*options.emulation), pace.overruns, pace.ops, 100 * share);
  if (share > device::kMaxOverrunShare) {
    log::warn(
        "{}: more than {:g} %, so this run is INVALID as a measurement; use a larger slowdown",
        text, 100 * device::kMaxOverrunShare);
  } else {
    log::info("{}: valid", text);
  }
}

std::string_view caching_name(PrefixCaching caching) {
  return caching == PrefixCaching::kOn ? "on" : "off";
}

Status choose_policy(const NodeOptions& options, ModelOnDevice& parts) {
  PolicyOptions policy = options.policy_options;
  policy.beliefs.step_times = parts.step_times.get();
  if (parts.profile.has_value() && parts.profile->host.has_value()) {
    policy.beliefs.host_times = &*parts.profile->host;
  }
  ASSIGN_OR_RETURN(parts.policy, make_policy(options.policy, policy));
  return {};
}

// Not before the model is loaded and something has been measured.
bool is_made_later(const NodeOptions& options) {
  return policy_needs_times(options.policy) || wants_step_budget(options);
}

Status settle_step_budget(NodeOptions& options, ModelOnDevice& parts, StepBell& bell,
                          const Clock& clock) {
  EngineMeter meter({.vocabulary = parts.folder.config.vocabulary,
                     .max_model_len = parts.plan.max_model_len,
                     .max_running = options.max_num_seqs},
                    *parts.executor, bell, clock);
  ASSIGN_OR_RETURN(const SmoothBudget budget, measure_step_budget(meter));
  options.policy_options.sarathi_token_budget = budget.tokens;
  log::info(
      "policy: steps of up to {} tokens, which take {}, so that decodes stay smooth (limit {}; one "
      "decode alone takes {}); --sarathi-token-budget sets another number",
      budget.tokens, format_duration(budget.step), format_duration(budget.limit),
      format_duration(budget.decode));
  return {};
}

// A record brings the profile with it, so that what was believed can be believed again.
std::string record_head(const NodeOptions& options, const ModelOnDevice& parts) {
  nlohmann::ordered_json head =
      nlohmann::ordered_json::parse(effective_config_json(options, parts));
  if (parts.profile.has_value()) {
    head["time_profile"] = nlohmann::ordered_json::parse(profile_text(*parts.profile));
  }
  return head.dump();
}

}  // namespace

Result<ModelOnDevice> open_model(NodeOptions& options, const Clock& clock) {
  ASSIGN_OR_RETURN(model::ModelFolder folder, model::open_model_folder(options.model));
  for (const TokenId id : options.end_tokens) {
    model::add_end_token(folder, id, "the tokenizer");
  }
  for (const std::string& warning : folder.warnings) {
    log::warn("{}", warning);
  }
  return plan_model(std::move(folder), options, clock);
}

Result<ModelOnDevice> plan_model(model::ModelFolder folder, NodeOptions& options,
                                 const Clock& clock) {
  ModelOnDevice parts;
  parts.folder = std::move(folder);
  if (!is_automatic(options) && !is_made_later(options)) {
    RETURN_IF_ERROR(choose_policy(options, parts));
  }
  if (!options.timeline_out.empty()) {
    parts.timeline = std::make_unique<observe::Timeline>(kSpansPerTrack);
  }
  parts.dtype = choose_dtype(options, parts.folder.config);
  const RunKernels run = find_kernels(options, parts.folder.config, parts.dtype);
  RETURN_IF_ERROR(open_device(options, run, parts));
  parts.kernels_from = settle_kernels(run, parts.device->caps());
  parts.hollow = options.emulation.has_value() && options.emulation->hollow;
  parts.kv_dtype = options.kv_dtype.value_or(parts.dtype);
  if (is_automatic(options)) {
    PolicyChoice choice = choose_automatic_policy(options, parts);
    log::info("policy: {} (auto: {})", choice.policy, choice.reason);
    options.policy = std::move(choice.policy);
  }
  parts.policy_name = options.policy;
  RETURN_IF_ERROR(find_profile(options, parts));
  const bool known = parts.profile.has_value() || !policy_needs_times(options.policy);
  if (parts.policy == nullptr && known && !wants_step_budget(options)) {
    RETURN_IF_ERROR(choose_policy(options, parts));
  }

  MemoryPlanInput input;
  input.weight_type = parts.dtype;
  input.max_running = options.max_num_seqs;
  input.max_model_len = options.max_model_len;
  input.memory_bytes = options.memory_bytes;
  if (input.memory_bytes == 0) {
    const device::DeviceCaps& caps = parts.device->caps();
    const int64_t free_bytes =
        caps.near_free_bytes > 0 ? caps.near_free_bytes : caps.free_memory_bytes;
    input.memory_bytes =
        static_cast<int64_t>(static_cast<double>(free_bytes) * options.memory_share);
  }
  input.executor.max_batched_tokens = options.max_num_batched_tokens;
  input.executor.max_logit_rows = options.max_num_seqs;
  input.executor.end_tokens = static_cast<int32_t>(parts.folder.eos_token_ids.size());
  use_threads(parts.device->caps(), input.executor);
  input.executor.kv_type = parts.kv_dtype;
  input.executor.block_tokens = options.block_tokens;
  if (options.emulation.has_value()) {
    parts.binder = std::make_unique<LateBinder>();
    if (parts.policy != nullptr) {
      parts.binder->use(make_binder(*parts.policy));
    }
    input.host_memory_bytes = options.host_memory_bytes;
    input.offloaded_sequences = options.max_num_seqs;
    input.executor.max_logit_rows += visitor_logit_rows(options.max_num_seqs);
    input.executor.host.group_stages = options.group_stages;
    input.executor.host.clock = &clock;
    input.executor.host.binder = parts.binder.get();
    input.executor.host.hop_patience = options.hop_patience;
    input.executor.host.faults = options.emulation->faults;
    input.executor.host.timeline = parts.timeline.get();
  }
  if (options.kv_blocks > 0) {
    input.executor.kv_bytes =
        options.kv_blocks * kv_layout_for(parts.folder.config, input.executor).block_bytes();
  }
  ASSIGN_OR_RETURN(parts.plan, plan_memory(parts.folder.config, input));
  return parts;
}

Status load_model(ModelOnDevice& parts,
                  const std::function<void(const model::LoadProgress&)>& progress,
                  std::function<void()> on_step) {
  if (parts.hollow) {
    parts.weights = model::hollow_weights(parts.folder.config, parts.dtype);
  } else {
    model::LoadOptions load;
    load.type = parts.dtype;
    load.on_progress = progress;
    ASSIGN_OR_RETURN(parts.weights, model::load_weights(parts.folder.path, parts.folder.config,
                                                        *parts.device, load));
  }
  ASSIGN_OR_RETURN(parts.executor,
                   ForwardExecutor::create(parts.folder.config, parts.weights, *parts.device,
                                           parts.plan.executor, std::move(on_step)));
  return {};
}

Status complete_model(NodeOptions& options, ModelOnDevice& parts, StepBell& bell,
                      const Clock& clock, const latency::ProfileProgress& progress) {
  RETURN_IF_ERROR(make_profile(options, parts, bell, clock, progress));
  if (wants_step_budget(options)) {
    RETURN_IF_ERROR(settle_step_budget(options, parts, bell, clock));
  }
  if (parts.policy != nullptr) {
    return {};
  }
  RETURN_IF_ERROR(choose_policy(options, parts));
  if (parts.binder != nullptr) {
    parts.binder->use(make_binder(*parts.policy));
  }
  return {};
}

EngineConfig engine_config(const NodeOptions& options, const ModelOnDevice& parts) {
  EngineConfig config;
  config.max_running = running_sequences(options);
  if (config.max_running < options.max_num_seqs) {
    log::warn(
        "--max-num-seqs {} is more than the steps of --max-num-batched-tokens {} have rows for: {} "
        "sequences run at a time; raise --max-num-batched-tokens or lower --max-num-seqs",
        options.max_num_seqs, options.max_num_batched_tokens, config.max_running);
  }
  config.max_model_len = parts.plan.max_model_len;
  config.prefix_caching = options.prefix_caching;
  config.eos_token_ids = parts.folder.eos_token_ids;
  config.seed = options.seed;
  if (parts.profile.has_value() && parts.profile->host.has_value()) {
    const latency::AlphaBeta& link = parts.profile->host->from_host;
    const auto block_bytes =
        static_cast<double>(kv_layout_for(parts.folder.config, parts.plan.executor).block_bytes());
    config.from_host = {.alpha_nanos = link.alpha_nanos,
                        .beta_nanos = link.beta_nanos * block_bytes};
  }
  return config;
}

Result<std::unique_ptr<Node>> Node::open(NodeOptions options, const Clock& clock) {
  ASSIGN_OR_RETURN(ModelOnDevice parts, open_model(options, clock));
  std::unique_ptr<Node> node(new Node(std::move(options), std::move(parts), clock));
  if (!node->options_.record_out.empty() && node->parts_.policy != nullptr) {
    RETURN_IF_ERROR(node->start_recording());
  }
  return node;
}

// A record begins with what the policy knows, so it is written once that is known.
Status Node::start_recording() {
  if (options_.record_out.empty() || recorder_ != nullptr) {
    return {};
  }
  ASSIGN_OR_RETURN(recorder_, RecordFile::create(options_.record_out, options_.record_limit_bytes,
                                                 record_head(options_, parts_)));
  return {};
}

Node::Node(NodeOptions options, ModelOnDevice parts, const Clock& clock)
    : options_(std::move(options)), clock_(clock), parts_(std::move(parts)) {
  ServedModel model = served_model(options_, parts_);
  metrics_ = std::make_unique<observe::EngineMetrics>(observe::EngineMetricsOptions{
      .model_name = model.names.front(),
      .vllm_names = options_.vllm_metrics,
      .block_tokens = parts_.plan.block_tokens,
      .total_blocks = parts_.plan.kv_blocks,
      .host_blocks = parts_.plan.host.kv_blocks,
      .predicted = wants_profile(options_) ? observe::Predicted::kYes : observe::Predicted::kNo,
      .admission = options_.admission == AdmissionMode::kOn && policy_admits(options_.policy)
                       ? observe::Admits::kYes
                       : observe::Admits::kNo});
  metrics_->on_gauges(
      {.total_blocks = parts_.plan.kv_blocks, .host_blocks = parts_.plan.host.kv_blocks});
  thread_ = std::make_unique<EngineThread>(
      std::move(model),
      EngineThreadOptions{.max_queue = options_.max_queue,
                          .max_queue_flex = options_.max_queue_flex,
                          .block_tokens = parts_.plan.block_tokens},
      clock_, [this](const std::string& reason) { metrics_->on_rejected(reason); });
}

// The device's last listener call may still be on its way when the engine has seen its step end:
// the device goes first.
Node::~Node() {
  thread_->shutdown();
  if (const device::EmulatedAccelerator* device = paced_device(options_, parts_)) {
    report_pace(options_, *device);
  }
  parts_.executor.reset();
  parts_.weights = model::Weights{};
  parts_.device.reset();
  if (parts_.timeline != nullptr) {
    const Status written = parts_.timeline->write_chrome_trace(options_.timeline_out);
    if (written.ok()) {
      log::info("timeline: {} (open it in Perfetto or chrome://tracing)", options_.timeline_out);
    } else {
      log::error("timeline: {}", written.error().message);
    }
  }
}

Status Node::load(const std::function<void(const model::LoadProgress&)>& progress,
                  const latency::ProfileProgress& profile_progress) {
  EngineThread& thread = *thread_;
  measuring_ =
      (wants_profile(options_) && !parts_.profile.has_value()) || wants_step_budget(options_);
  Status loaded = load_model(parts_, progress, [this, &thread] {
    if (measuring_) {
      bell_.ring();
    } else {
      thread.step_completed();
    }
  });
  if (loaded.ok()) {
    NodeOptions measured = options_;
    loaded = complete_model(measured, parts_, bell_, clock_, profile_progress);
    const std::lock_guard lock(measured_mutex_);
    options_.policy_options = measured.policy_options;
  }
  if (loaded.ok()) {
    loaded = start_recording();
  }
  if (!loaded.ok()) {
    thread_->set_failed();
    return loaded;
  }
  measuring_ = false;
  auto engine = std::make_unique<Engine>(engine_config(options_, parts_), *parts_.executor,
                                         *parts_.policy, clock_, metrics_.get(), recorder_.get());
  if (parts_.step_times != nullptr) {
    engine->predict_with(*parts_.step_times);
  }
  if (options_.admission == AdmissionMode::kOn) {
    admission_ = make_admission(*parts_.policy);
    engine->admit_with(admission_.get());
  }
  thread_->start(std::move(engine));
  return {};
}

std::string Node::metrics_text() const {
  if (const device::EmulatedAccelerator* device = paced_device(options_, parts_)) {
    metrics_->on_pace(pace_of(*device));
  }
  return metrics_->render();
}

std::string Node::config_json() const {
  const std::lock_guard lock(measured_mutex_);
  return effective_config_json(options_, parts_);
}

std::string effective_config_json(const NodeOptions& options, const ModelOnDevice& parts) {
  const model::ModelConfig& shape = parts.folder.config;
  nlohmann::ordered_json json;
  json["model"] = std::filesystem::weakly_canonical(options.model).filename().string();
  json["architecture"] = shape.architecture_name;
  json["device"] = parts.device->caps().name;
  json["isa"] = parts.device->caps().kernels_text();
  json["isa_chosen"] = parts.kernels_from;
  json["threads"] = parts.device->caps().threads;
  for (const device::NodeUse& node : parts.device->caps().nodes) {
    json["numa_nodes"].push_back({{"node", node.id}, {"threads", node.threads}});
  }
  json["dtype"] = std::string(element_name(parts.dtype));
  json["kv_cache_dtype"] = std::string(element_name(parts.kv_dtype));
  json["policy"] = parts.policy_name;
  json["sarathi_token_budget"] = options.policy_options.sarathi_token_budget;
  json["piggyback_token_budget"] = options.policy_options.piggyback.token_budget;
  json["offload_below"] = options.policy_options.piggyback.offload_below;
  json["onload_above"] = options.policy_options.piggyback.onload_above;
  json["llumnix_headroom"] = options.policy_options.llumnix_headroom_percent;
  json["patience_steps"] = options.policy_options.patience_steps;
  if (wants_profile(options)) {
    json["time_model"] = std::string(time_model_name(options.profile.model));
    json["admission"] = options.admission == AdmissionMode::kOn ? "on" : "off";
  }
  json["max_model_len"] = parts.plan.max_model_len;
  json["max_num_seqs"] = options.max_num_seqs;
  json["max_num_batched_tokens"] = options.max_num_batched_tokens;
  json["block_size"] = parts.plan.block_tokens;
  json["kv_blocks"] = parts.plan.kv_blocks;
  json["prefix_caching"] = std::string(caching_name(options.prefix_caching));
  json["max_queue"] = options.max_queue;
  json["max_queue_flex"] = options.max_queue_flex;
  json["seed"] = options.seed;
  json["end_tokens"] = parts.folder.eos_token_ids;
  for (const MemoryPlanRow& row : parts.plan.rows) {
    json["memory_plan_bytes"][row.what] = row.bytes;
  }
  json["memory_bytes"] = parts.plan.memory_bytes;
  if (options.emulation.has_value()) {
    json["emulated_accelerator"] = true;
    json["host_kv_blocks"] = parts.plan.host.kv_blocks;
    json["host_memory_bytes"] = parts.plan.host.memory_bytes;
    json["group_stages"] = options.group_stages;
    for (const MemoryPlanRow& row : parts.plan.host.rows) {
      json["host_memory_plan_bytes"][row.what] = row.bytes;
    }
  }
  return json.dump();
}

}  // namespace tandem
