#include "node/planned_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "node/policy_choice.h"
#include "node/scheduled_model.h"
#include "node/time_profile.h"
#include "scheduler/policies/registry.h"

namespace tandem {
namespace {

// The policy cannot be made before the model is loaded and something has been measured.
bool is_made_later(const NodeOptions& options) {
  return policy_traits(options.policy).needs_step_times || wants_step_budget(options);
}

// What the memory of a node without --device-memory or the like is: a share of what is free.
int64_t memory_to_use(const NodeOptions& options, const device::Device& device) {
  if (options.memory_bytes != 0) {
    return options.memory_bytes;
  }
  const int64_t near_bytes = device.host().near_free_bytes;
  const int64_t free_bytes = near_bytes > 0 ? near_bytes : device.caps().free_memory_bytes;
  return static_cast<int64_t>(static_cast<double>(free_bytes) *
                              options.memory_share.value_or(kMemoryShare));
}

MemoryPlanInput plan_input(const OpenedModel& model, const NodeOptions& options,
                           const Clock& clock) {
  MemoryPlanInput input;
  input.format = model.format;
  input.formats = &model.device.device().formats();
  input.max_running = options.max_num_seqs;
  input.max_model_len = options.max_model_len;
  input.memory_bytes = memory_to_use(options, model.device.device());
  input.flags = options.memory_flags;
  input.executor.max_batched_tokens = options.max_num_batched_tokens;
  input.executor.max_logit_rows = options.max_num_seqs;
  input.executor.end_tokens = static_cast<int32_t>(model.folder.eos_token_ids.size());
  use_threads(model.device.device(), input.executor);
  input.executor.kv_type = model.kv_dtype;
  input.executor.block_tokens = options.block_tokens;
  if (options.accelerator.has_value()) {
    input.host_memory_bytes = options.host_memory_bytes;
    input.offloaded_sequences = options.max_num_seqs;
    input.executor.max_logit_rows += visitor_logit_rows(options.max_num_seqs);
    if (stages_prompts(options)) {
      input.executor.host.staging_tokens = options.max_num_batched_tokens;
    }
    input.executor.host.group_stages = options.group_stages;
    input.executor.host.clock = &clock;
    input.executor.host.hop_patience = options.hop_patience;
    input.executor.host.faults = options.host_faults;
    input.executor.host.timeline = model.device.timeline();
  }
  if (options.kv_blocks > 0) {
    input.executor.kv_bytes =
        options.kv_blocks * kv_layout_for(model.folder.config, input.executor).block_bytes();
  }
  return input;
}

Result<model::ModelFolder> open_folder(const NodeOptions& options) {
  ASSIGN_OR_RETURN(model::ModelFolder folder, model::open_model_folder(options.model));
  for (const TokenId id : options.end_tokens) {
    model::add_end_token(folder, id, "the tokenizer");
  }
  for (const std::string& warning : folder.warnings) {
    log::warn("{}", warning);
  }
  return folder;
}

// Of the numbers that are computed with: weights too, unless they are quantised.
ElementType choose_dtype(const NodeOptions& options, const model::ModelConfig& shape) {
  if (options.dtype.has_value()) {
    return *options.dtype;
  }
  if (options.quantization.value_or(Quantization::kNone) != Quantization::kNone) {
    return ElementType::kBF16;
  }
  if (shape.checkpoint_type == ElementType::kF16) {
    log::warn(
        "the checkpoint is float16: weights run as bfloat16, with 3 bits less precision; --dtype "
        "float32 keeps them exactly");
    return ElementType::kBF16;
  }
  return shape.checkpoint_type;
}

Status check_step_budget(const NodeOptions& options, const model::ModelConfig& shape) {
  if (options.budget_model_digest.empty() || options.budget_model_digest == shape_digest(shape)) {
    return {};
  }
  return invalid_argument(
      fmt::format("the step budget was found for another model, '{}'; find one for this model by "
                  "`tandem tune`",
                  options.budget_model),
      "step-budget");
}

// A file's quantised weights stay as they are unless something else is asked for.
bool keeps_stored(const NodeOptions& options, const model::ModelFolder& folder) {
  return folder.stored.has_value() && !options.quantization &&
         options.dtype.value_or(ElementType::kBF16) == ElementType::kBF16;
}

Result<model::WeightFormats> weight_formats_of(const NodeOptions& options,
                                               const model::ModelFolder& folder) {
  if (keeps_stored(options, folder)) {
    return *folder.stored;
  }
  const device::WeightFormat format = device::weight_format(
      choose_dtype(options, folder.config), options.quantization.value_or(Quantization::kNone));
  if (format.quantization != Quantization::kNone && format.type != ElementType::kBF16) {
    return invalid_argument(
        fmt::format("--quantization {} computes with bfloat16, so it cannot be used with --dtype "
                    "{}; leave one of them out",
                    device::format_name(format), element_name(format.type)),
        "quantization");
  }
  return model::WeightFormats(format);
}

Result<model::WeightFormats> choose_format(const NodeOptions& options,
                                           const model::ModelFolder& folder) {
  ASSIGN_OR_RETURN(model::WeightFormats format, weight_formats_of(options, folder));
  format.activations = options.activations;
  if (options.activations == Activations::kInt8 && !format.any_quantized()) {
    if (folder.stored.has_value() && !options.quantization) {
      return invalid_argument(
          fmt::format("--activations int8 needs the file's quantised weights, which --dtype {} "
                      "replaces by numbers; leave one of the two out",
                      element_name(format.layers.type)),
          "activations");
    }
    return invalid_argument(
        fmt::format("--activations int8 needs quantised weights, and these are {}; add "
                    "--quantization int8, int4 or int4-symmetric, or leave --activations out",
                    element_name(format.layers.type)),
        "activations");
  }
  return format;
}

// A device without products of a file's quantised weights gets their values in bf16.
model::WeightFormats supported_or_bf16(model::WeightFormats format, const device::Device& device) {
  if (!format.from_file() || format.supported(device.formats())) {
    return format;
  }
  log::info("{} has no products with quantised weights: they become bfloat16", device.caps().name);
  return device::weight_format(format.layers.type, Quantization::kNone);
}

Status check_supported(const model::WeightFormats& format, const device::Device& device) {
  if (!format.supported(device.formats())) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("{} has no products with weights of {}; use --quantization none "
                    "and --dtype bfloat16 or float32{}",
                    device.caps().name, format.name(),
                    format.activations == Activations::kInt8 ? ", without --activations" : ""),
        format.layers.quantization == Quantization::kNone ? "dtype" : "quantization"};
  }
  return {};
}

Result<PlannedModel> plan_for_device(model::ModelFolder folder, const model::WeightFormats& wanted,
                                     NodeDevice& device, NodeOptions& options, const Clock& clock) {
  const model::WeightFormats format = supported_or_bf16(wanted, device.device());
  RETURN_IF_ERROR(check_supported(format, device.device()));
  if (format.activations != options.activations) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{} has no products with quantised weights, so activations stay {}; "
                             "leave --activations out",
                             device.device().caps().name, element_name(format.layers.type)),
                 "activations"};
  }
  PlannedModel planned{{.device = device,
                        .folder = std::move(folder),
                        .format = format,
                        .kv_dtype = options.kv_dtype.value_or(format.layers.type)},
                       {},
                       {},
                       {}};
  RETURN_IF_ERROR(check_step_budget(options, planned.folder.config));
  std::optional<PolicyChoice> choice;
  if (is_automatic(options)) {
    choice = choose_automatic_policy(options, planned);
    options.policy = choice->policy;
  }
  planned.policy_name = options.policy;
  ASSIGN_OR_RETURN(planned.profile, find_profile(options, planned));
  const bool known = planned.profile.has_value() || !policy_traits(options.policy).needs_step_times;
  if (known && !wants_step_budget(options)) {
    RETURN_IF_ERROR(schedule_model(options, planned.profile));  // what is wrong is said now
  }
  ASSIGN_OR_RETURN(planned.plan,
                   plan_memory(planned.folder.config, plan_input(planned, options, clock)));
  if (choice.has_value()) {
    log::info("policy: {} (auto: {})", choice->policy, choice->reason);
  }
  return planned;
}

Result<SoleModel> plan_on_device(model::ModelFolder folder, const model::WeightFormats& format,
                                 std::unique_ptr<NodeDevice> device, NodeOptions& options,
                                 const Clock& clock) {
  ASSIGN_OR_RETURN(PlannedModel model,
                   plan_for_device(std::move(folder), format, *device, options, clock));
  return SoleModel{.device = std::move(device), .model = std::move(model)};
}

// Pinned memory takes time to make, and other programs lose it.
int64_t reduced_host_memory(const model::ModelConfig& config, const model::WeightFormats& format,
                            const NodeOptions& options) {
  MemoryPlanInput input;
  input.max_model_len = options.max_model_len;
  input.offloaded_sequences = options.max_num_seqs;
  input.executor.kv_type = options.kv_dtype.value_or(format.layers.type);
  input.executor.block_tokens = options.block_tokens;
  return std::min(options.host_memory_bytes, useful_host_bytes(config, input));
}

// The model on the GPU that --device auto prefers; nullopt: the CPUs are to serve it. Then nothing
// of the GPU is held any more, and `options` are as they were.
Result<std::optional<SoleModel>> plan_on_automatic_gpu(const model::ModelFolder& folder,
                                                       const model::WeightFormats& format,
                                                       NodeOptions& options, const Clock& clock) {
  const AutomaticGpu gpu = *options.automatic_gpu;
  NodeOptions on_gpu = options;
  on_gpu.automatic_gpu.reset();
  if (gpu.may_reduce_host_memory) {
    on_gpu.host_memory_bytes = reduced_host_memory(folder.config, format, options);
  }
  GpuFacts facts;
  Result<std::unique_ptr<NodeDevice>> device = NodeDevice::open(on_gpu, folder.config, format);
  if (device.ok()) {
    facts.name = (*device)->caps().name;
    facts.kernels = (*device)->caps().kernels;
  } else {
    facts.model = device.error();
  }
  ASSIGN_OR_RETURN(DeviceChoice choice, choose_device(gpu, facts));
  if (choice.takes_gpu) {
    Result<SoleModel> model = plan_on_device(folder, format, *std::move(device), on_gpu, clock);
    if (model.ok()) {
      log::info("{}", describe(choice));
      options = std::move(on_gpu);
      return std::optional(std::move(model).value());
    }
    facts.model = model.error();
    ASSIGN_OR_RETURN(choice, choose_device(gpu, facts));
  }
  log::warn("{}", describe(choice));
  return std::optional<SoleModel>();
}

// One tier, with everything else as it is.
void use_cpus(NodeOptions& options) {
  options.accelerator.reset();
  options.host_memory_bytes = 0;
  options.automatic_gpu.reset();
}

// Before anything else is done, as far as it can be told without the model.
Status check_policy(const NodeOptions& options) {
  if (!is_automatic(options) && !is_made_later(options)) {
    RETURN_IF_ERROR(make_policy(options.policy, options.policy_options, {}));
  }
  return {};
}

}  // namespace

Result<SoleModel> plan_model(model::ModelFolder folder, NodeOptions& options, const Clock& clock) {
  RETURN_IF_ERROR(check_policy(options));
  ASSIGN_OR_RETURN(const model::WeightFormats format, choose_format(options, folder));
  if (options.automatic_gpu.has_value()) {
    ASSIGN_OR_RETURN(std::optional<SoleModel> on_gpu,
                     plan_on_automatic_gpu(folder, format, options, clock));
    if (on_gpu.has_value()) {
      return *std::move(on_gpu);
    }
    use_cpus(options);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<NodeDevice> device,
                   NodeDevice::open(options, folder.config, format));
  return plan_on_device(std::move(folder), format, std::move(device), options, clock);
}

Result<SoleModel> plan_model(model::ModelFolder folder, std::unique_ptr<NodeDevice> device,
                             NodeOptions& options, const Clock& clock) {
  RETURN_IF_ERROR(check_policy(options));
  ASSIGN_OR_RETURN(const model::WeightFormats format, choose_format(options, folder));
  return plan_on_device(std::move(folder), format, std::move(device), options, clock);
}

Result<SoleModel> open_model(NodeOptions& options, const Clock& clock) {
  ASSIGN_OR_RETURN(model::ModelFolder folder, open_folder(options));
  return plan_model(std::move(folder), options, clock);
}

int32_t running_sequences(const NodeOptions& options) {
  const int32_t rows = options.max_num_batched_tokens;
  const int32_t most = std::min(options.max_num_seqs, rows);
  return options.accelerator.has_value() ? std::clamp(rows - visitor_logit_rows(most), 1, most)
                                         : most;
}

bool needs_measuring(const NodeOptions& options, const PlannedModel& model) {
  return (wants_profile(options) && !model.profile.has_value()) || wants_step_budget(options);
}

}  // namespace tandem
