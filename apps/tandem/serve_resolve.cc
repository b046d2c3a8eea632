// What the flags of `tandem serve` mean: texts with units become numbers, and what does not go
// together is refused.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "api/key_file.h"
#include "base/log_fields.h"
#include "base/units.h"
#include "commit.h"
#include "model/model_folder.h"
#include "piggyback/workers/faulty_workers.h"
#include "serve_flags.h"

namespace tandem {
namespace {

Result<std::optional<ElementType>> parse_dtype(const std::string& text, const char* flag) {
  if (text == "auto") {
    return std::optional<ElementType>{};
  }
  if (text == "bfloat16") {
    return std::optional{ElementType::kBF16};
  }
  if (text == "float32" || text == "float") {
    return std::optional{ElementType::kF32};
  }
  return invalid_argument(
      fmt::format("--{} knows auto, bfloat16 and float32, not '{}'", flag, text), flag);
}

Error about_flag(const char* flag, const Error& error) {
  return invalid_argument(fmt::format("--{}: {}", flag, error.message), flag);
}

Result<Nanos> duration_flag(const char* flag, const std::string& text) {
  const Result<Nanos> duration = parse_duration(text);
  if (!duration.ok()) {
    return about_flag(flag, duration.error());
  }
  return *duration;
}

Result<int64_t> bytes_flag(const char* flag, const std::string& text) {
  const Result<int64_t> bytes = parse_bytes(text);
  if (!bytes.ok()) {
    return about_flag(flag, bytes.error());
  }
  return *bytes;
}

Status resolve_http(ServeFlags& flags) {
  api::ServerLimits& limits = flags.server.limits;
  ASSIGN_OR_RETURN(const int64_t body, bytes_flag("max-body-size", flags.max_body));
  limits.http.max_body_bytes = static_cast<uint64_t>(body);
  ASSIGN_OR_RETURN(limits.max_request_bytes_held,
                   bytes_flag("max-request-bytes", flags.max_request_bytes));
  if (limits.max_request_bytes_held < body) {
    return invalid_argument(
        fmt::format("--max-request-bytes ({}) must be at least --max-body-size ({})",
                    flags.max_request_bytes, flags.max_body),
        "max-request-bytes");
  }
  ASSIGN_OR_RETURN(limits.max_answer_bytes_held,
                   bytes_flag("max-answer-bytes", flags.max_answer_bytes));
  ASSIGN_OR_RETURN(limits.header_timeout, duration_flag("header-timeout", flags.header_timeout));
  ASSIGN_OR_RETURN(limits.body_timeout, duration_flag("body-timeout", flags.body_timeout));
  ASSIGN_OR_RETURN(limits.idle_timeout, duration_flag("idle-timeout", flags.idle_timeout));
  ASSIGN_OR_RETURN(limits.write_timeout, duration_flag("write-timeout", flags.write_timeout));
  ASSIGN_OR_RETURN(flags.drain, duration_flag("drain-timeout", flags.drain_timeout));
  flags.server.tls.client_certificates = static_cast<api::ClientCertificates>(flags.ssl_cert_reqs);
  flags.server.cors.credentials =
      flags.allow_credentials ? api::CorsCredentials::kAllowed : api::CorsCredentials::kForbidden;
  ASSIGN_OR_RETURN(flags.server.api_keys, api_keys(flags));
  if (!flags.allowed_origins.empty()) {
    flags.server.cors.allowed_origins = flags.allowed_origins;
  }
  flags.server.version = TANDEM_VERSION;
  flags.server.commit = kCommit;
  return {};
}

Status resolve_service(ServeFlags& flags) {
  ServiceDefaults& service = flags.server.service;
  const Result<ServiceClass> service_class = parse_service_class(flags.default_class);
  if (!service_class.ok()) {
    return about_flag("default-class", service_class.error());
  }
  service.service_class = *service_class;
  if (!flags.ttft_slo.empty()) {
    const Result<TtftRule> rule = parse_ttft_rule(flags.ttft_slo);
    if (!rule.ok()) {
      return about_flag("ttft-slo", rule.error());
    }
    service.slo.ttft = *rule;
  }
  if (!flags.tpot_slo.empty()) {
    const Result<Nanos> target = parse_target(flags.tpot_slo);
    if (!target.ok()) {
      return about_flag("tpot-slo", target.error());
    }
    service.slo.tpot = *target;
  }
  ASSIGN_OR_RETURN(flags.server.objectives, api::parse_objectives(flags.objectives));
  return {};
}

Status resolve_memory(ServeFlags& flags) {
  NodeOptions& node = flags.node;
  if (!flags.device_memory.empty()) {
    ASSIGN_OR_RETURN(node.memory_bytes, bytes_flag("device-memory", flags.device_memory));
    if (flags.memory_share > 0) {
      return invalid_argument(
          "--device-memory and --gpu-memory-utilization say the same in two ways; give one of them",
          "gpu-memory-utilization");
    }
  }
  if (flags.memory_share > 0) {
    if (!flags.emulation.empty()) {
      return invalid_argument(
          "--gpu-memory-utilization does not go with --emulate-accelerator, whose memory is given "
          "by --device-memory, for example 4GiB",
          "gpu-memory-utilization");
    }
    node.memory_share = flags.memory_share;
  }
  return {};
}

Status resolve_tiers(ServeFlags& flags) {
  NodeOptions& node = flags.node;
  if (!flags.host_memory.empty()) {
    ASSIGN_OR_RETURN(node.host_memory_bytes, bytes_flag("host-memory", flags.host_memory));
  }
  if (flags.emulation.empty()) {
    if (!node.timeline_out.empty()) {
      return invalid_argument("--timeline-out is for two tiers: give --emulate-accelerator too",
                              "timeline-out");
    }
    if (node.host_memory_bytes > 0) {
      return invalid_argument("--host-memory is for two tiers: give --emulate-accelerator too",
                              "host-memory");
    }
    return {};
  }
  const std::string spec = flags.emulation == "auto" ? "" : flags.emulation;
  Result<device::AcceleratorSpec> accelerator =
      device::accelerator_spec(device::kEmulatedBackend, spec);
  if (!accelerator.ok()) {
    return about_flag("emulate-accelerator", accelerator.error());
  }
  if (accelerator->hollow) {
    return invalid_argument(
        "--emulate-accelerator: hollow: a hollow accelerator makes its numbers up, and a client "
        "could not tell such answers from real ones; leave hollow out",
        "emulate-accelerator");
  }
  const Result<HostFaults> faults =
      piggyback::parse_worker_faults(accelerator->worker_faults, accelerator->fault_seed);
  if (!faults.ok()) {
    return about_flag("emulate-accelerator", faults.error());
  }
  if (node.device.threads > 0) {
    return invalid_argument(
        "--threads does not go with --emulate-accelerator: say cores=N,host-cores=N there",
        "threads");
  }
  if (node.device.numa.mode == device::NumaMode::kNodes) {
    return invalid_argument(
        "--numa with a list does not go with --emulate-accelerator, which divides the cores "
        "itself; "
        "start it with taskset or numactl to keep it to some",
        "numa");
  }
  node.accelerator = std::move(*accelerator);
  node.host_faults = *faults;
  ASSIGN_OR_RETURN(node.hop_patience, duration_flag("hop-patience", flags.hop_patience));
  constexpr Nanos kShortest = std::chrono::milliseconds(10);
  if (node.hop_patience < kShortest) {
    return invalid_argument(
        fmt::format("--hop-patience {} is shorter than 10ms: busy workers would be doubted all the "
                    "time; the default is 2s",
                    flags.hop_patience),
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

Status resolve(ServeFlags& flags) {
  if (flags.node.model.empty()) {
    return invalid_argument("the folder of a model is missing: tandem serve MODEL_DIR", "model");
  }
  NodeOptions& node = flags.node;
  ASSIGN_OR_RETURN(node.dtype, parse_dtype(flags.dtype, "dtype"));
  ASSIGN_OR_RETURN(node.kv_dtype, parse_dtype(flags.kv_dtype, "kv-cache-dtype"));
  RETURN_IF_ERROR(resolve_memory(flags));
  ASSIGN_OR_RETURN(node.profile.model, latency::parse_time_model(flags.time_model));
  node.profile.cache_folder = profile_folder();
  node.kernels_folder = profile_folder();
  const Result<device::NumaChoice> numa = device::parse_numa(flags.numa);
  if (!numa.ok()) {
    return about_flag("numa", numa.error());
  }
  node.device.numa = *numa;
  RETURN_IF_ERROR(resolve_tiers(flags));
  RETURN_IF_ERROR(resolve_service(flags));
  ASSIGN_OR_RETURN(node.record_limit_bytes, bytes_flag("record-limit", flags.record_limit));
  RETURN_IF_ERROR(resolve_http(flags));
  node.targets_given = gives_targets(flags);
  if (const char* isa = std::getenv("TANDEM_ISA"); isa != nullptr && *isa != '\0') {
    ASSIGN_OR_RETURN(node.device.isa, kernels::parse_choice(isa));
  }
  node.admission = flags.admission == "on" ? AdmissionMode::kOn : AdmissionMode::kOff;
  node.prefix_caching = flags.prefix_caching == "on" ? PrefixCaching::kOn : PrefixCaching::kOff;
  node.vllm_metrics = !flags.no_vllm_metrics;
  return {};
}

Result<std::vector<api::ApiKey>> api_keys(const ServeFlags& flags) {
  std::vector<api::ApiKey> keys;
  if (!flags.api_key_file.empty()) {
    ASSIGN_OR_RETURN(keys, api::read_key_file(flags.api_key_file));
  }
  // Behind the file's: where both have a key, what the file says of it holds.
  for (const std::string& key : flags.given_api_keys) {
    keys.push_back({.key = key});
  }
  return keys;
}

std::string config_json(const std::string& of_node, const ServeFlags& flags) {
  auto json = nlohmann::ordered_json::parse(of_node);
  const ServiceDefaults& service = flags.server.service;
  json["default_class"] = class_name(service.service_class);
  json["objectives"] = flags.objectives;
  json["tokenizer"] = nullptr;
  json["chat_template"] = nullptr;
  if (!flags.tokenizer.empty()) {
    json["tokenizer"] = flags.tokenizer;
  }
  if (!flags.chat_template.empty()) {
    json["chat_template"] = flags.chat_template;
  }
  json["ttft_slo"] = nullptr;
  json["tpot_slo"] = nullptr;
  if (service.slo.ttft) {
    json["ttft_slo"] = format_ttft_rule(*service.slo.ttft);
  }
  if (service.slo.tpot) {
    json["tpot_slo"] = format_ttft_rule({.base = *service.slo.tpot});
  }
  return json.dump();
}

}  // namespace tandem
