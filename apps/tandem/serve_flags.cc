#include "serve_flags.h"

#include <fmt/format.h>

#include <cmath>

#include "scheduler/policies/registry.h"
#include "vllm_flags.h"

namespace tandem {
namespace {

// "4096", or as vLLM writes thousands: "4k" (of 1000), "4K" (of 1024), likewise m, M, g, G.
int32_t parse_tokens(const std::string& flag, const std::string& text, int32_t max) {
  double number = 0;
  size_t used = 0;
  try {
    number = std::stod(text, &used);
  } catch (const std::exception&) {
    used = std::string::npos;
  }
  const std::string unit = used <= text.size() ? text.substr(used) : "?";
  if (!unit.empty()) {
    const size_t power = std::string_view("kmg").find(unit);
    const size_t binary = std::string_view("KMG").find(unit);
    if (unit.size() != 1 || (power == std::string::npos && binary == std::string::npos)) {
      cli::refuse(flag,
                  fmt::format("'{}' is not a number of tokens; use for example 4096 or 4K", text));
    }
    number *= power != std::string::npos ? std::pow(1000, power + 1) : std::pow(1024, binary + 1);
  }
  if (!(number >= 1 && number <= max) || number != std::floor(number)) {
    cli::refuse(flag, fmt::format("{} is not a whole number of 1 to {}", text, max));
  }
  return static_cast<int32_t>(number);
}

cli::Option add_tokens(cli::Command command, const std::string& flag, int32_t& tokens, int32_t max,
                       const std::string& description) {
  return command.add_option_function<std::string>(
      flag,
      [flag, &tokens, max](const std::string& text) { tokens = parse_tokens(flag, text, max); },
      description);
}

void add_model_flags(cli::Command command, ServeFlags& flags) {
  NodeOptions& node = flags.node;
  command.add_option("--served-model-name", node.served_names,
                     "Names the model answers to; the first is shown (default: the folder's name)");
  command
      .add_option("--dtype", flags.dtype, "Weights: auto (the checkpoint's), bfloat16 or float32")
      .capture_default_str();
  command
      .add_option("--kv-cache-dtype", flags.kv_dtype,
                  "KV: auto (as the weights), bfloat16 or float32")
      .capture_default_str();
  command.add_option_function<std::string>(
      "--max-model-len",
      [&node](const std::string& text) {
        node.max_model_len =
            text == "auto" || text == "-1" ? 0 : parse_tokens("--max-model-len", text, 1 << 30);
      },
      "Tokens of a sequence, prompt and output (default: what model and memory allow)");
  command.add_option("--seed", node.seed, "Seed from which requests without a seed get theirs")
      .capture_default_str();
  command.group_new_options("Model");
}

void add_profile_flags(cli::Command command, ServeFlags& flags) {
  NodeOptions& node = flags.node;
  command.add_option("--profile", node.profile.file,
                     "Step times of this model on this machine, as `tandem profile` writes them; "
                     "measured and written first where the file is not there (default: one in the "
                     "user's cache folder, for policies that need one)");
  command
      .add_option("--time-model", flags.time_model,
                  "Which of the profile's models predicts: modular (by modules, as OmniServe), "
                  "regression (as HyGen) or table (as SLINFER)")
      .capture_default_str()
      .one_of({"modular", "regression", "table"});
  command.group_new_options("Step times");
}

void add_policy_flags(cli::Command command, NodeOptions& node) {
  std::string help =
      "Scheduling policy: auto (default: omniserve if a target is given or a profile of this model "
      "on this machine lies ready, else sarathi, on two tiers piggyback)";
  for (const PolicyDescriptor* policy : policies()) {
    help += fmt::format(", {} ({})", policy->name, policy->summary);
    if (policy->traits.measured_budget != nullptr) {
      node.policy_options[*policy->traits.measured_budget] = 0;
    }
  }
  command.add_option("--policy", node.policy, help);
  for (const PolicyOption* option : policy_options()) {
    command
        .add_option(fmt::format("--{}", option->name), node.policy_options[*option],
                    fmt::format("{}: {}", policies_that_read(*option), option->help))
        .capture_default_str();
  }
}

void add_scheduling_flags(cli::Command command, ServeFlags& flags) {
  NodeOptions& node = flags.node;
  add_policy_flags(command, node);
  command
      .add_option("--admission", flags.admission,
                  "omniserve: off admits latency-sensitive requests whose targets are out of reach")
      .capture_default_str()
      .one_of({"on", "off"});
  command.add_option("--max-num-seqs", node.max_num_seqs, "Sequences that run at a time")
      .capture_default_str()
      .in_range(1, 65536);
  add_tokens(command, "--max-num-batched-tokens", node.max_num_batched_tokens, 1 << 20,
             "Tokens of a step, prompts and decodes")
      .default_str(std::to_string(node.max_num_batched_tokens));
  command.group_new_options("Scheduling");
}

void add_memory_flags(cli::Command command, ServeFlags& flags) {
  NodeOptions& node = flags.node;
  command.add_option("--device-memory", flags.device_memory,
                     "For weights, workspaces and KV, e.g. 8GiB (default: 80 % of free memory)");
  command
      .add_option("--gpu-memory-utilization", flags.memory_share,
                  "The same as a share of the memory that is free at the start, e.g. 0.9")
      .in_range(0.01, 1.0);
  command
      .add_option("--num-kv-blocks,--num-gpu-blocks-override", node.kv_blocks,
                  "KV blocks (default: what memory and --max-num-seqs allow)")
      .in_range(1, 1 << 30);
  command
      .add_option("--enable-prefix-caching", flags.prefix_caching,
                  "Reuse KV of equal prompt beginnings; alone: on; --no-enable-prefix-caching: off")
      .capture_default_str()
      .one_of({"on", "off"});
  command.add_option("--block-size", node.block_tokens,
                     "Tokens of a KV block (default: 32, more for small models)");
  command.group_new_options("Memory");
}

void add_device_flags(cli::Command command, ServeFlags& flags) {
  NodeOptions& node = flags.node;
  command.add_option("--device", flags.device, "Where to run: auto or cpu")
      .capture_default_str()
      .one_of({"auto", "cpu"});
  command
      .add_option("--threads", node.device.threads,
                  "Compute threads (default: one for each core this process may use)")
      .in_range(1, 4096);
  command
      .add_option(
          "--numa", flags.numa,
          "Memory nodes to compute on: auto (all that this process may use; threads, weights "
          "and KV are placed on them), off (as if there were one) or a list such as 0,2-3")
      .capture_default_str();
  command.group_new_options("Processors");
}

void add_tier_flags(cli::Command command, ServeFlags& flags) {
  NodeOptions& node = flags.node;
  command.add_option("--emulate-accelerator", flags.emulation,
                     "Two tiers on this machine: some cores play an accelerator with "
                     "--device-memory of its own, the others attend for offloaded requests; "
                     "cores=N,host-cores=N or auto");
  command.add_option("--host-memory", flags.host_memory,
                     "For KV of offloaded requests and the queues to the host");
  command.add_option("--timeline-out", node.timeline_out,
                     "At the end, write what ran when (the last spans of each stream "
                     "and worker) to this file, for Perfetto or chrome://tracing");
  command
      .add_option(
          "--group-stages", node.group_stages,
          "Layers launched together; offloaded tokens that are ready join before each group")
      .capture_default_str()
      .in_range(1, 1024);
  command
      .add_option("--hop-patience", flags.hop_patience,
                  "How long a host worker may take for one layer of one token before "
                  "another one tries")
      .capture_default_str();
  command.group_new_options("Two tiers");
}

void add_queue_flags(cli::Command command, ServeFlags& flags) {
  NodeOptions& node = flags.node;
  command
      .add_option("--max-queue", node.max_queue,
                  "Waiting latency-sensitive requests; more are refused with 429")
      .capture_default_str()
      .in_range(1, 1 << 24);
  command
      .add_option("--max-queue-flex", node.max_queue_flex,
                  "Waiting best-effort requests; more are refused with 429")
      .capture_default_str()
      .in_range(1, 1 << 24);
  command.add_option("--record-out", node.record_out,
                     "Write the run to this file for `tandem replay` (holds prompts)");
  command.add_option("--record-limit", flags.record_limit, "Largest size of that file")
      .capture_default_str();
  command.group_new_options("Queue and record");
}

void add_limit_flags(cli::Command command, ServeFlags& flags) {
  api::ServerLimits& limits = flags.server.limits;
  command.add_option("--max-connections", limits.max_connections, "Open connections")
      .capture_default_str()
      .in_range(1, 1 << 20);
  command
      .add_option("--max-connections-per-client", limits.max_connections_per_client,
                  "Open connections of one address; 0: as many as there are")
      .capture_default_str()
      .in_range(0, 1 << 20);
  command.add_option("--max-body-size", flags.max_body, "Largest request body")
      .capture_default_str();
  command
      .add_option("--max-request-bytes", flags.max_request_bytes,
                  "Memory for requests that are being sent, all together")
      .capture_default_str();
  command
      .add_option("--max-answer-bytes", flags.max_answer_bytes,
                  "Memory for answers that wait for slow readers, all together")
      .capture_default_str();
  command
      .add_option("--header-timeout", flags.header_timeout, "Longest time for a request's headers")
      .capture_default_str();
  command.add_option("--body-timeout", flags.body_timeout, "Longest time for a request's body")
      .capture_default_str();
  command
      .add_option("--idle-timeout", flags.idle_timeout,
                  "Longest time between requests of a connection")
      .capture_default_str();
  command
      .add_option("--write-timeout", flags.write_timeout,
                  "Longest time for a client to take what is written")
      .capture_default_str();
  command.group_new_options("Limits");
}

void add_tls_flags(cli::Command command, ServeFlags& flags) {
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
      .capture_default_str()
      .in_range(0, 2);
  command.group_new_options("TLS");
}

void add_http_flags(cli::Command command, ServeFlags& flags) {
  api::ServerOptions& server = flags.server;
  command.add_option("--host", server.host, "Address to listen on").capture_default_str();
  command.add_option("--port", server.port, "Port to listen on; 0 picks a free one")
      .capture_default_str();
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
      .capture_default_str();
  command.add_option("--allowed-headers", server.cors.allowed_headers, "CORS headers")
      .capture_default_str();
  command.add_flag("--allow-credentials", flags.allow_credentials, "CORS credentials");
  command.group_new_options("HTTP");
  add_limit_flags(command, flags);
  add_tls_flags(command, flags);
  command
      .add_option("--overload-status", server.errors.overload_status,
                  "HTTP status of refused requests when full")
      .capture_default_str()
      .one_of({429, 503, 529});
  command.add_flag("--no-vllm-metrics", flags.no_vllm_metrics, "Publish tandem_* metrics only");
  command
      .add_option("--drain-timeout", flags.drain_timeout,
                  "After SIGTERM, how long running requests may still take")
      .capture_default_str();
  add_log_flags(command, flags);
  command.add_flag(
      "--check", flags.check,
      "Check flags, keys, certificates and the model's files, show the memory plan, and "
      "end: code 0, or 2 with the reason");
  command.group_new_options("Operation");
}

void add_service_flags(cli::Command command, ServeFlags& flags) {
  command
      .add_option("--default-class", flags.default_class,
                  "Class of requests that name none: latency_sensitive or best_effort (or, as in "
                  "service_tier, priority or flex)")
      .capture_default_str();
  command.add_option("--ttft-slo", flags.ttft_slo,
                     "Target of latency-sensitive requests that bring none, time to the first "
                     "token: a duration, or a rule of the prompt such as 500ms+2ms/tok,max=8s");
  command.add_option("--tpot-slo", flags.tpot_slo,
                     "The same for the time per output token after the first, e.g. 50ms");
  command.add_option("--objective", flags.objectives,
                     "What a name in the header x-llm-d-inference-objective stands for, e.g. "
                     "\"chat class=latency_sensitive level=-1 tpot=50ms\"; may be repeated");
  command.group_new_options("Classes and targets");
}

}  // namespace

void add_log_flags(cli::Command command, ServeFlags& flags) {
  command.add_option("--log-level", flags.log_level, "trace, debug, info, warning, error or off")
      .capture_default_str();
  command.add_option("--log-format", flags.log_format, "text, or json: one object a line")
      .capture_default_str()
      .one_of({"text", "json"});
}

void add_text_flags(cli::Command command, ServeFlags& flags) {
  command.add_option("--tokenizer", flags.tokenizer,
                     "Folder with another tokenizer (default: the model's)");
  command.add_option("--chat-template", flags.chat_template,
                     "File with another chat template, or the template itself (default: the "
                     "model's)");
  command.group_new_options("Model");
}

void add_node_flags(cli::Command command, ServeFlags& flags) {
  add_model_flags(command, flags);
  add_scheduling_flags(command, flags);
  add_memory_flags(command, flags);
  add_device_flags(command, flags);
  add_tier_flags(command, flags);
  add_profile_flags(command, flags);
}

void add_serve_flags(cli::Command command, ServeFlags& flags) {
  command.add_option("model,--model", flags.node.model,
                     "Folder with config.json, *.safetensors and a tokenizer");
  add_text_flags(command, flags);
  add_node_flags(command, flags);
  add_queue_flags(command, flags);
  add_service_flags(command, flags);
  add_http_flags(command, flags);
  command.add_option("--config",
                     "YAML file with any of these flags as keys (also TANDEM_CONFIG); flags given "
                     "here win");
  command.add_flag_callback(
      "--list-vllm-flags",
      [] {
        fmt::print("{}", vllm_flag_table());
        cli::end_parse();
      },
      "Say what becomes of the flags of `vllm serve` that are not listed here");
  command.group_new_options("Operation");
  add_vllm_flags(command, flags.vllm_notes);
  command.add_flag("--no-enable-prefix-caching", "").group("");  // see plain_flags
  command.let_last_win();
  command.footer(
      "\nExamples:\n"
      "  tandem serve models/llama --host 0.0.0.0 --api-key-file keys\n"
      "  tandem serve models/llama --policy sarathi --default-class best_effort --ttft-slo 2s\n"
      "  tandem serve models/llama --config tandem.yaml --check\n"
      "\nA flag may also be a key of the --config file (max-num-seqs: 64) or a variable\n"
      "(TANDEM_MAX_NUM_SEQS=64). docs/serving.md says more.");
}

}  // namespace tandem
