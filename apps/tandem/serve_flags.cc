#include "serve_flags.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "api/key_file.h"
#include "base/units.h"
#include "commit.h"

namespace tandem {
namespace {

void add_model_flags(CLI::App& command, ServeFlags& flags) {
  NodeOptions& node = flags.node;
  command.add_option("--served-model-name", node.served_names,
                     "Names the model answers to; the first is shown (default: the folder's name)");
  command
      .add_option("--dtype", flags.dtype, "Weights: auto (the checkpoint's), bfloat16 or float32")
      ->capture_default_str();
  command
      .add_option("--kv-cache-dtype", flags.kv_dtype,
                  "KV: auto (as the weights), bfloat16 or float32")
      ->capture_default_str();
  command
      .add_option("--max-model-len", node.max_model_len,
                  "Tokens of a sequence, prompt and output (default: what model and memory allow)")
      ->check(CLI::Range(1, 1 << 30));
  command.add_option("--seed", node.seed, "Of the seeds drawn for requests that bring none")
      ->capture_default_str();
}

void add_profile_flags(CLI::App& command, ServeFlags& flags) {
  NodeOptions& node = flags.node;
  command.add_option("--profile", node.profile.file,
                     "Step times of this model on this machine, as `tandem profile` writes them; "
                     "measured and written first where the file is not there (default: one in the "
                     "user's cache folder, for policies that need one)");
  command
      .add_option("--time-model", flags.time_model,
                  "Which of the profile's models predicts: modular (by modules, as OmniServe), "
                  "regression (as HyGen) or table (as SLINFER)")
      ->capture_default_str()
      ->check(CLI::IsMember({"modular", "regression", "table"}));
}

void add_policy_flags(CLI::App& command, NodeOptions& node) {
  command.add_option(
      "--policy", node.policy,
      "Scheduling policy: auto (default: omniserve if a target is given or a profile of this model "
      "on this machine lies ready, else sarathi, on two tiers piggyback), "
      "accel_only (first come, first served), sarathi (stall-free, two classes), "
      "piggyback (two classes; best effort decodes on the host where memory is short), overlap and "
      "lanes (the same with other rules of joining a step), omniserve "
      "(as piggyback by a model of time, so that targets are kept; needs a profile), llumnix (two "
      "classes, a fixed share of the KV blocks kept for the first) or llumnix_cpu (the same, and "
      "what overflows decodes on the host)");
  command
      .add_option(
          "--llumnix-headroom", node.policy_options.llumnix_headroom_percent,
          "llumnix, llumnix_cpu: percent of the KV blocks into which no best-effort request is let")
      ->capture_default_str();
  node.policy_options.sarathi_token_budget = 0;
  command
      .add_option("--sarathi-token-budget", node.policy_options.sarathi_token_budget,
                  "Tokens of a step under sarathi; 0: as many, up to 512, as keep decodes smooth, "
                  "measured at start")
      ->capture_default_str();
  PiggybackOptions& piggyback = node.policy_options.piggyback;
  command
      .add_option("--piggyback-token-budget", piggyback.token_budget,
                  "Tokens of a step under piggyback; under omniserve while no target limits it")
      ->capture_default_str();
  command
      .add_option("--offload-below", piggyback.offload_below,
                  "piggyback, omniserve: with fewer percent of the KV blocks free, best-effort "
                  "decodes move to "
                  "the host; 100: always")
      ->capture_default_str();
  command
      .add_option("--onload-above", piggyback.onload_above,
                  "piggyback, omniserve: with so many percent still free afterwards, one moves "
                  "back; 100: never")
      ->capture_default_str();
  command
      .add_option("--patience-steps", node.policy_options.patience_steps,
                  "omniserve: best effort is passed over for so many steps at most")
      ->capture_default_str();
}

void add_engine_flags(CLI::App& command, ServeFlags& flags) {
  NodeOptions& node = flags.node;
  add_policy_flags(command, node);
  command
      .add_option(
          "--admission", flags.admission,
          "omniserve: off lets in latency-sensitive requests whose targets are out of reach")
      ->capture_default_str()
      ->check(CLI::IsMember({"on", "off"}));
  command.add_option("--max-num-seqs", node.max_num_seqs, "Sequences that run at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  command
      .add_option("--max-num-batched-tokens", node.max_num_batched_tokens,
                  "Tokens of a step, prompts and decodes")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command
      .add_option("--enable-prefix-caching", flags.prefix_caching,
                  "Reuse KV of equal prompt beginnings: on or off")
      ->capture_default_str()
      ->check(CLI::IsMember({"on", "off"}));
  command.add_option("--block-size", node.block_tokens,
                     "Tokens of a KV block (default: 32, more for small models)");
  command.add_option("--device", flags.device, "Where to run: auto or cpu")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu"}));
  command
      .add_option("--threads", node.device.threads,
                  "Compute threads (default: one for each core this process may use)")
      ->check(CLI::Range(1, 4096));
  command
      .add_option(
          "--numa", flags.numa,
          "Memory nodes to compute on: auto (all that this process may use; threads, weights "
          "and KV are placed on them), off (as if there were one) or a list such as 0,2-3")
      ->capture_default_str();
  command.add_option("--device-memory", flags.device_memory,
                     "For weights, workspaces and KV, e.g. 8GiB (default: 80 % of free memory)");
  command.add_option("--emulate-accelerator", flags.emulation,
                     "Two tiers on this machine: some cores play an accelerator with "
                     "--device-memory of its own, the others attend for offloaded requests; "
                     "cores=N,host-cores=N or auto");
  command.add_option("--host-memory", flags.host_memory,
                     "Second tier: for KV of offloaded requests and the queues to the host");
  command.add_option("--timeline-out", node.timeline_out,
                     "Second tier: at the end, write what ran when (the last spans of each stream "
                     "and worker) to this file, for Perfetto or chrome://tracing");
  command
      .add_option("--group-stages", node.group_stages,
                  "Second tier: layers launched together; visitors are chosen before each group")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command
      .add_option("--hop-patience", flags.hop_patience,
                  "Second tier: how long a host worker may take for one layer of one token before "
                  "another one tries")
      ->capture_default_str();
  command
      .add_option("--num-kv-blocks", node.kv_blocks,
                  "KV blocks (default: what memory and --max-num-seqs allow)")
      ->check(CLI::Range(1, 1 << 30));
}

void add_queue_flags(CLI::App& command, ServeFlags& flags) {
  NodeOptions& node = flags.node;
  command
      .add_option("--max-queue", node.max_queue,
                  "Waiting latency-sensitive requests; more are refused with 429")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  command
      .add_option("--max-queue-flex", node.max_queue_flex,
                  "Waiting best-effort requests; more are refused with 429")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  command.add_option("--record-out", node.record_out,
                     "Write the run to this file for `tandem replay` (holds prompts)");
  command.add_option("--record-limit", flags.record_limit, "Largest size of that file")
      ->capture_default_str();
}

void add_limit_flags(CLI::App& command, ServeFlags& flags) {
  api::ServerLimits& limits = flags.server.limits;
  command.add_option("--max-connections", limits.max_connections, "Open connections")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command
      .add_option("--max-connections-per-client", limits.max_connections_per_client,
                  "Open connections of one address; 0: as many as there are")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20));
  command.add_option("--max-body-size", flags.max_body, "Largest request body")
      ->capture_default_str();
  command
      .add_option("--max-request-bytes", flags.max_request_bytes,
                  "Memory for requests that are being sent, all together")
      ->capture_default_str();
  command
      .add_option("--max-answer-bytes", flags.max_answer_bytes,
                  "Memory for answers that wait for slow readers, all together")
      ->capture_default_str();
  command
      .add_option("--header-timeout", flags.header_timeout, "Longest time for a request's headers")
      ->capture_default_str();
  command.add_option("--body-timeout", flags.body_timeout, "Longest time for a request's body")
      ->capture_default_str();
  command
      .add_option("--idle-timeout", flags.idle_timeout,
                  "Longest time between requests of a connection")
      ->capture_default_str();
  command
      .add_option("--write-timeout", flags.write_timeout,
                  "Longest time for a client to take what is written")
      ->capture_default_str();
}

void add_tls_flags(CLI::App& command, ServeFlags& flags) {
  api::TlsFiles& tls = flags.server.tls;
  command.add_option("--ssl-certfile", tls.certificate,
                     "PEM file with the server's certificate and those that sign it: serves https");
  command.add_option("--ssl-keyfile", tls.key,
                     "PEM file with its private key (default: in the certificate's file)");
  command.add_option("--ssl-ca-certs", tls.client_authorities,
                     "PEM file with who signs the certificates of clients");
  command
      .add_option("--ssl-cert-reqs", flags.ssl_cert_reqs,
                  "Certificates of clients: 0 not asked for, 1 checked where sent, 2 required")
      ->capture_default_str()
      ->check(CLI::Range(0, 2));
}

void add_http_flags(CLI::App& command, ServeFlags& flags) {
  api::ServerOptions& server = flags.server;
  command.add_option("--host", server.host, "Address to listen on")->capture_default_str();
  command.add_option("--port", server.port, "Port to listen on; 0 picks a free one")
      ->capture_default_str();
  command.add_option("--api-key", flags.given_api_keys,
                     "Key that clients must send as Bearer; may be repeated (others see it in the "
                     "list of processes: prefer the file or the variable)");
  command.add_option("--api-key-file", flags.api_key_file,
                     "File with more such keys, one a line, and behind each what its requests get "
                     "and may claim (docs/scheduling.md); read again on SIGHUP");
  command.add_option("--allowed-origins", flags.allowed_origins,
                     "CORS origins; * for all (default: all with an API key; without one the pages "
                     "of this machine)");
  command.add_option("--allowed-methods", server.cors.allowed_methods, "CORS methods")
      ->capture_default_str();
  command.add_option("--allowed-headers", server.cors.allowed_headers, "CORS headers")
      ->capture_default_str();
  command.add_flag("--allow-credentials", flags.allow_credentials, "CORS credentials");
  add_limit_flags(command, flags);
  add_tls_flags(command, flags);
  command
      .add_option("--overload-status", server.errors.overload_status,
                  "HTTP status of refused requests when full")
      ->capture_default_str()
      ->check(CLI::IsMember({429, 503, 529}));
  command.add_flag("--no-vllm-metrics", flags.no_vllm_metrics, "Publish tandem_* metrics only");
  command
      .add_option("--drain-timeout", flags.drain_timeout,
                  "After SIGTERM, how long running requests may still take")
      ->capture_default_str();
  command.add_option("--log-level", flags.log_level, "trace, debug, info, warning, error or off")
      ->capture_default_str();
}

void add_service_flags(CLI::App& command, ServeFlags& flags) {
  command
      .add_option("--default-class", flags.default_class,
                  "Class of requests that name none: latency_sensitive or best_effort (or, as in "
                  "service_tier, priority or flex)")
      ->capture_default_str();
  command.add_option("--ttft-slo", flags.ttft_slo,
                     "Target of latency-sensitive requests that bring none, time to the first "
                     "token: a duration, or a rule of the prompt such as 500ms+2ms/tok,max=8s");
  command.add_option("--tpot-slo", flags.tpot_slo,
                     "The same for the time per output token after the first, e.g. 50ms");
  command.add_option("--objective", flags.objectives,
                     "What a name in the header x-llm-d-inference-objective stands for, e.g. "
                     "\"chat class=latency_sensitive level=-1 tpot=50ms\"; may be repeated");
}

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
  const auto has_target = [](const Slo& slo) {
    return slo.ttft.has_value() || slo.tpot.has_value();
  };
  flags.node.targets_given =
      has_target(service.slo) ||
      std::ranges::any_of(flags.server.objectives,
                          [&](const api::Objective& o) { return has_target(o.gives.slo); });
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
  const Result<device::EmulationSpec> emulation = device::parse_emulation_spec(spec);
  if (!emulation.ok()) {
    return about_flag("emulate-accelerator", emulation.error());
  }
  if (emulation->hollow) {
    return invalid_argument(
        "--emulate-accelerator: hollow: a hollow accelerator makes its numbers up, and a client "
        "could not tell such answers from real ones; leave hollow out",
        "emulate-accelerator");
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
  node.emulation = *emulation;
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

void add_node_flags(CLI::App& command, ServeFlags& flags) {
  add_model_flags(command, flags);
  add_engine_flags(command, flags);
  add_profile_flags(command, flags);
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

void add_serve_flags(CLI::App& command, ServeFlags& flags) {
  command
      .add_option("model", flags.node.model,
                  "Folder with config.json, *.safetensors and a tokenizer")
      ->required();
  add_node_flags(command, flags);
  add_queue_flags(command, flags);
  add_service_flags(command, flags);
  add_http_flags(command, flags);
  command.add_option("--config", "YAML file with any of these flags as keys; flags given here win");
  for (CLI::Option* option : command.get_options()) {
    if (option->get_items_expected_max() <= 1) {
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
  }
}

Status resolve(ServeFlags& flags) {
  NodeOptions& node = flags.node;
  ASSIGN_OR_RETURN(node.dtype, parse_dtype(flags.dtype, "dtype"));
  ASSIGN_OR_RETURN(node.kv_dtype, parse_dtype(flags.kv_dtype, "kv-cache-dtype"));
  if (!flags.device_memory.empty()) {
    ASSIGN_OR_RETURN(node.memory_bytes, bytes_flag("device-memory", flags.device_memory));
  }
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
