// What the options of `tandem serve` mean together: what does not go together is refused, and what
// follows from them is filled in.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "api/option_table.h"
#include "base/log.h"
#include "base/log_fields.h"
#include "base/units.h"
#include "default_model.h"
#include "hub_model.h"
#include "model/model_folder.h"
#include "node/step_budget_file.h"
#include "options/option_json.h"
#include "piggyback/workers/faulty_workers.h"
#include "scheduler/policies/hygen.h"
#include "scheduler/policies/registry.h"
#include "serve_flags.h"
#include "shared_options.h"
#include "version.h"

namespace tandem {
namespace {

Error about_flag(const char* flag, const Error& error) {
  return invalid_argument(fmt::format("--{}: {}", flag, error.message), flag);
}

Status resolve_http(ServeFlags& flags) {
  const api::ServerLimits& limits = flags.server.limits;
  const auto body = static_cast<int64_t>(limits.http.max_body_bytes);
  if (limits.max_request_bytes_held < body) {
    return invalid_argument(
        fmt::format("--max-request-bytes ({}) must be at least --max-body-size ({})",
                    exact_bytes(limits.max_request_bytes_held), exact_bytes(body)),
        "max-request-bytes");
  }
  flags.batches.line_bytes = body;
  if (flags.batches.file_bytes < 1 || flags.batches.storage_bytes < flags.batches.file_bytes) {
    return invalid_argument(
        fmt::format("--batch-storage ({}) must be at least --batch-file-size ({}), and that at "
                    "least a byte",
                    exact_bytes(flags.batches.storage_bytes),
                    exact_bytes(flags.batches.file_bytes)),
        "batch-storage");
  }
  if (flags.batches.keep < std::chrono::hours(1)) {
    return invalid_argument("--batch-keep must be at least 1h", "batch-keep");
  }
  ASSIGN_OR_RETURN(flags.server.api_keys, api::read_keys(flags.server.key_sources));
  flags.server.version = kVersion;
  flags.server.commit = kCommit;
  return {};
}

Status resolve_memory(const NodeOptions& node) {
  if (node.memory_share.has_value() && node.memory_bytes > 0) {
    return invalid_argument(
        "--device-memory and --gpu-memory-utilization say the same in two ways; give one of them",
        "gpu-memory-utilization");
  }
  if (node.memory_share.has_value() && node.accelerator.has_value()) {
    return invalid_argument(
        "--gpu-memory-utilization does not go with --emulate-accelerator or --device cuda, whose "
        "memory is given by --device-memory, for example 4GiB",
        "gpu-memory-utilization");
  }
  return {};
}

// What --device names, if not the CPUs.
Status resolve_device(const std::string& device, NodeOptions& node) {
  ASSIGN_OR_RETURN(const std::optional<device::AcceleratorSpec> named, named_device(device));
  if (!named.has_value()) {
    return {};
  }
  if (node.accelerator.has_value()) {
    return invalid_argument(
        fmt::format("--device {} does not go with --emulate-accelerator, which plays one on the "
                    "CPUs; leave one of them out",
                    device),
        "device");
  }
  if (node.host_memory_bytes == 0) {
    return invalid_argument(
        fmt::format("--device {} needs --host-memory, pinned memory for KV of offloaded requests "
                    "and the queues to the host, for example 8GiB",
                    device),
        "host-memory");
  }
  node.accelerator = named;
  return {};
}

// A time, or the file of `tandem tune`, as the options of the policy that reads it.
Status resolve_step_budget(const ServeFlags& flags, NodeOptions& node) {
  if (flags.step_budget.empty()) {
    return flags.fixed_step_budget
               ? invalid_argument(
                     "--fixed-step-budget is about the file of --step-budget: give one",
                     "fixed-step-budget")
               : Status{};
  }
  if (!reads_option(node.policy, kHyGenStepBudget)) {
    return invalid_argument(fmt::format("--step-budget is for --policy {}: give that, too",
                                        policies_that_read(kHyGenStepBudget)),
                            "step-budget");
  }
  if (const Result<Nanos> time = parse_duration(flags.step_budget); time.ok()) {
    const int64_t micros = std::chrono::duration_cast<std::chrono::microseconds>(*time).count();
    if (micros < kHyGenStepBudget.min || micros > kHyGenStepBudget.max) {
      return invalid_argument(
          fmt::format("--step-budget {} is out of range: 1us to 30min", flags.step_budget),
          "step-budget");
    }
    node.policy_options[kHyGenStepBudget] = static_cast<int32_t>(micros);
    return {};
  }
  ASSIGN_OR_RETURN(const StepBudgetFile file, read_step_budget(flags.step_budget));
  node.policy_options[kHyGenStepBudget] = file.budget_us;
  if (!file.flex_only && node.policy_options[kStepBudgetFlexOnly] != 0) {
    return invalid_argument(
        fmt::format("{} was found without --{}: leave that out, or tune with it", flags.step_budget,
                    kStepBudgetFlexOnly.name),
        std::string(kStepBudgetFlexOnly.name));
  }
  node.policy_options[kStepBudgetFlexOnly] = file.flex_only ? 1 : 0;
  node.budget_model = file.model;
  node.budget_model_digest = file.model_digest;
  const std::array<const PolicyOption*, kHeldMetrics.size()> goals = {
      &kHoldMeanTbt, &kHoldP99Tbt, &kHoldMeanTtft, &kHoldP99Ttft};
  for (size_t i = 0; i < goals.size() && !flags.fixed_step_budget; ++i) {
    node.policy_options[*goals[i]] = file.held_us[i];
  }
  return {};
}

Status check_one_tier(const NodeOptions& node) {
  if (!node.timeline_out.empty()) {
    return invalid_argument(
        "--timeline-out is for two tiers: give --device cuda or --emulate-accelerator too",
        "timeline-out");
  }
  if (node.host_memory_bytes > 0) {
    return invalid_argument(
        "--host-memory is for two tiers: give --device cuda or --emulate-accelerator too",
        "host-memory");
  }
  return {};
}

Status resolve_tiers(NodeOptions& node) {
  if (!node.accelerator.has_value()) {
    return check_one_tier(node);
  }
  if (node.accelerator->hollow) {
    return invalid_argument(
        "--emulate-accelerator: hollow: a hollow accelerator makes its numbers up, and a client "
        "could not tell such answers from real ones; leave hollow out",
        "emulate-accelerator");
  }
  const Result<HostFaults> faults =
      piggyback::parse_worker_faults(node.accelerator->worker_faults, node.accelerator->fault_seed);
  if (!faults.ok()) {
    return about_flag("emulate-accelerator", faults.error());
  }
  if (node.device.threads > 0) {
    return invalid_argument(
        "--threads does not go with an accelerator: with --emulate-accelerator say "
        "cores=N,host-cores=N there; beside a GPU every core attends",
        "threads");
  }
  if (node.device.numa.mode == device::NumaMode::kNodes) {
    return invalid_argument(
        "--numa with a list does not go with an accelerator, beside which the cores are divided "
        "otherwise; start it with taskset or numactl to keep it to some",
        "numa");
  }
  node.host_faults = *faults;
  constexpr Nanos kShortest = std::chrono::milliseconds(10);
  if (node.hop_patience < kShortest) {
    return invalid_argument(
        fmt::format("--hop-patience {} is shorter than 10ms: busy workers would be doubted all the "
                    "time; the default is 2s",
                    exact_duration(node.hop_patience)),
        "hop-patience");
  }
  return {};
}

}  // namespace

bool gives_targets(const ServeFlags& flags) {
  const auto has_target = [](const Slo& slo) {
    return slo.ttft.has_value() || slo.tpot.has_value();
  };
  return has_target(flags.server.service.slo) ||
         std::ranges::any_of(flags.server.objectives,
                             [&](const api::Objective& o) { return has_target(o.gives.slo); }) ||
         std::ranges::any_of(flags.server.api_keys,
                             [&](const api::ApiKey& key) { return has_target(key.grant.slo); });
}

bool gives_classes(const ServeFlags& flags) {
  const auto gives = [](const ServiceGrant& grant) {
    return grant.service_class.has_value() || grant.level.has_value() ||
           grant.best_class != ServiceClass::kLatencySensitive;
  };
  return flags.server.service.service_class != ServiceClass::kLatencySensitive ||
         std::ranges::any_of(flags.server.objectives,
                             [&](const api::Objective& o) { return gives(o.gives); }) ||
         std::ranges::any_of(flags.server.api_keys,
                             [&](const api::ApiKey& key) { return gives(key.grant); });
}

std::filesystem::path profile_folder() {
  for (const auto& [variable, below] : {std::pair("XDG_CACHE_HOME", "tandem/profiles"),
                                        std::pair("HOME", ".cache/tandem/profiles")}) {
    const char* folder = std::getenv(variable);
    if (folder != nullptr && std::filesystem::path(folder).is_absolute()) {
      return std::filesystem::path(folder) / below;
    }
  }
  return {};
}

openai::GenerationDefaults request_defaults(const model::GenerationDefaults& of_model) {
  openai::GenerationDefaults defaults;
  defaults.temperature = of_model.temperature.value_or(defaults.temperature);
  defaults.top_p = of_model.top_p.value_or(defaults.top_p);
  defaults.top_k = of_model.top_k.value_or(defaults.top_k);
  defaults.min_p = of_model.min_p.value_or(defaults.min_p);
  defaults.repetition_penalty = of_model.repetition_penalty.value_or(defaults.repetition_penalty);
  defaults.max_tokens = of_model.max_new_tokens;
  return defaults;
}

Status start_log(const ServeFlags& flags) {
  ASSIGN_OR_RETURN(const log::Format format, log::parse_format(flags.log_format));
  return log::start(flags.log_level, format);
}

Result<TextParts> load_text(ServeFlags& flags) {
  ASSIGN_OR_RETURN(const model::ModelFolder folder, model::open_model_folder(flags.node.model));
  const std::filesystem::path place =
      flags.tokenizer.empty() ? folder.path : std::filesystem::path(flags.tokenizer);
  TextParts parts;
  ASSIGN_OR_RETURN(parts.tokenizer, text::load_tokenizer(place));
  if (parts.tokenizer->eos_id()) {
    flags.node.end_tokens = {*parts.tokenizer->eos_id()};
  }
  if (!flags.tokenizer.empty() && parts.tokenizer->vocab_size() > folder.config.vocabulary) {
    return invalid_argument(
        fmt::format("--tokenizer: '{}' has {} tokens and the model {}; name the tokenizer that the "
                    "model was trained with",
                    flags.tokenizer, parts.tokenizer->vocab_size(), folder.config.vocabulary),
        "tokenizer");
  }
  Result<text::ChatTemplate> chat = flags.chat_template.empty()
                                        ? text::load_chat_template(place)
                                        : text::load_chat_template(place, flags.chat_template);
  if (!chat.ok() && !flags.chat_template.empty()) {
    return about_flag("chat-template", chat.error());
  }
  if (!chat.ok()) {
    return chat.error();
  }
  parts.chat_template = std::make_unique<const text::ChatTemplate>(*std::move(chat));
  return parts;
}

void take_default_model(ServeFlags& flags) {
  NodeOptions& node = flags.node;
  if (!node.model.empty() || (node.model = default_model()).empty()) {
    return;
  }
  log::info(
      "no model is named: serving Tandem-Tiny, which adds, copies and looks up, and knows little "
      "else; tandem serve MODEL_DIR, FILE.gguf or ORG/NAME serves another one");
  constexpr int64_t kEnoughBytes = int64_t{512} << 20;
  if (node.memory_bytes == 0 && !node.memory_share.has_value()) {
    node.memory_bytes = kEnoughBytes;
  }
}

Status fetch_model(ServeFlags& flags, const std::function<bool()>& stop) {
  if (flags.node.model.empty()) {
    return invalid_argument(
        "the model is missing: tandem serve MODEL_DIR, a GGUF file, or a name such as ORG/NAME",
        "model");
  }
  ASSIGN_OR_RETURN(const FoundModel found, find_model(flags.node.model, flags.hub, stop));
  flags.node.model = found.path;
  if (flags.node.served_names.empty() && !found.served_name.empty()) {
    flags.node.served_names = {found.served_name};
  }
  return {};
}

Status resolve(ServeFlags& flags) {
  if (flags.node.model.empty()) {
    return invalid_argument("the model is missing: tandem serve MODEL_DIR, or a GGUF file",
                            "model");
  }
  NodeOptions& node = flags.node;
  RETURN_IF_ERROR(resolve_device(flags.device, node));
  RETURN_IF_ERROR(resolve_memory(node));
  node.profile.cache_folder = profile_folder();
  node.kernels_folder = profile_folder();
  RETURN_IF_ERROR(resolve_tiers(node));
  RETURN_IF_ERROR(resolve_step_budget(flags, node));
  RETURN_IF_ERROR(resolve_http(flags));
  node.targets_given = gives_targets(flags);
  return {};
}

std::string config_json(const std::string& of_node, ServeFlags& flags) {
  auto json = nlohmann::ordered_json::parse(of_node);
  write_options(api::server_option_table(flags.server), json);
  write_options(batches::batch_option_table(flags.batches), json);
  write_options(command_option_table(flags), json);
  return json.dump();
}

}  // namespace tandem
