#include "start_log.h"

#include <fmt/format.h>

#include <sstream>

#include "base/log.h"
#include "base/log_fields.h"
#include "base/units.h"
#include "device/cpu/proc_text.h"
#include "node/config_json.h"
#include "node/policy_choice.h"
#include "scheduler/policies/registry.h"
#include "shared_options.h"
#include "version.h"

namespace tandem {
namespace {

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

void log_model(const PlannedModel& model) {
  const model::ModelConfig& shape = model.folder.config;
  const std::string device = model.device.caps().name;
  const std::string shape_text =
      fmt::format("{} ({} layers, hidden {}, {}/{} heads, {} parameters)", shape.architecture_name,
                  shape.layers, shape.hidden, shape.heads, shape.kv_heads,
                  rounded_count(model::parameter_count(shape)));
  log::info_fields(
      fmt::format("Tandem {}{}: {}, {}", kVersion,
                  *kCommit == '\0' ? "" : fmt::format(" ({})", kCommit), shape_text, device),
      {{"version", kVersion}, {"commit", kCommit}, {"model", shape_text}, {"device", device}});
  for (const device::NodeUse& node : model.device.device().host().nodes) {
    log::info("NUMA node {}: {} compute thread{} on CPUs {}, {} of {} free", node.id, node.threads,
              node.threads == 1 ? "" : "s", device::format_ranges(node.cpus),
              format_bytes(node.free_bytes), format_bytes(node.memory_bytes));
  }
}

// In text what people look for; all of it is in the JSON log and at /v1/tandem/config.
void log_configuration(ServeFlags& flags, const PlannedModel& model) {
  const NodeOptions& node = flags.node;
  const device::AcceleratorCaps& caps = model.device.caps();
  log::info_fields(
      fmt::format(
          "configuration: policy {}, {} threads, {} kernels, weights in {}, KV in {}, "
          "{} sequences of up to {} tokens, {} tokens a step, prefix caching {}; all of it: "
          "GET /v1/tandem/config",
          model.policy_name, caps.threads, kernels::isa_name(model.device.device().host().isa),
          model.format.name(), element_name(model.kv_dtype), node.max_num_seqs,
          model.plan.max_model_len, node.max_num_batched_tokens,
          node.prefix_caching == PrefixCaching::kOn ? "on" : "off"),
      {{"configuration", log::RawJson{config_json(effective_config_json(node, model), flags)}}});
}

void log_rows(const char* tier, const std::vector<MemoryPlanRow>& rows) {
  for (const MemoryPlanRow& row : rows) {
    log::info_fields(fmt::format("memory plan: {}", row.what),
                     {{"tier", std::string(tier)}, {"what", row.what}, {"bytes", row.bytes}});
  }
}

void log_memory_plan(const MemoryPlan& plan) {
  if (log::is_json()) {
    log_rows(plan.host.rows.empty() ? "device" : "accelerator", plan.rows);
    log_rows("host", plan.host.rows);
    return;
  }
  std::istringstream lines(format_plan(plan));
  std::string line;
  while (std::getline(lines, line)) {
    log::info("memory plan: {}", line);
  }
}

// What flags, objectives and keys say that the policy does not read.
void log_unread_terms(const ServeFlags& flags, const std::string& policy) {
  const ServiceFields reads = policy_traits(policy).reads;
  if (!reads.targets && gives_targets(flags)) {
    log::warn(
        "TTFT or TPOT targets are given (--ttft-slo, --tpot-slo, --objective or a key), and the "
        "policy {} plans for none; they are measured and reported only. --policy auto reads them",
        policy);
  }
  if (!reads.service_class && gives_classes(flags)) {
    log::warn(
        "classes or levels are given (--default-class, --objective or a key), and the policy {} "
        "serves all requests in the order of their arrival; --policy auto reads them",
        policy);
  }
}

// A policy whose purpose is the host tier, on one tier.
void log_unused_policy(const MemoryPlan& plan, const std::string& policy) {
  const PolicyTraits traits = policy_traits(policy);
  if (plan.host.rows.empty() && (traits.needs_host_times || traits.plain_join)) {
    log::warn(
        "the policy {} moves decodes to the host tier, and this server has none: all of them stay. "
        "--host-memory adds it beside a GPU or an emulated accelerator; --policy auto chooses a "
        "policy for the tiers there are",
        policy);
  }
}

void log_warnings(const ServeFlags& flags) {
  if (flags.node.accelerator.has_value() && !flags.node.accelerator->drill.empty()) {
    log::warn("FAULTS ARE PLANTED into this server ({}): for drills and tests, not for use",
              flags.node.accelerator->drill);
  }
  if (!is_loopback(flags.server.host) && flags.server.api_keys.empty()) {
    log::warn(
        "listening on {} without --api-key: everyone who reaches this address may use the model",
        flags.server.host);
  }
  if (!is_loopback(flags.server.host) && !flags.server.api_keys.empty() &&
      !flags.server.tls.wanted()) {
    log::warn(
        "listening on {} without --ssl-certfile: keys and prompts cross the network in the clear "
        "unless a proxy before this server encrypts them",
        flags.server.host);
  }
}

}  // namespace

void log_start(ServeFlags& flags, const PlannedModel& model) {
  log_model(model);
  for (const std::string& note : flags.vllm_notes) {
    log::info("accepted without effect: {}", note);
  }
  log_configuration(flags, model);
  log_memory_plan(model.plan);
  log_unread_terms(flags, model.policy_name);
  log_unused_policy(model.plan, model.policy_name);
  warn_of_options_without_effect(flags.node);
  log_warnings(flags);
}

void log_ready(const ServeFlags& flags, Instance& instance, uint16_t port) {
  const std::string& name = instance.frontend().model().names.front();
  const std::string base = fmt::format(
      "{}://{}:{}/v1", flags.server.tls.wanted() ? "https" : "http", flags.server.host, port);
  log::info_fields(fmt::format("ready: {} serves '{}', up to {} tokens a sequence", base, name,
                               instance.model().plan.max_model_len),
                   {{"url", base}, {"model", name}});
  if (flags.server.page) {
    log::info("page: {}/ has a chat and shows what the server does",
              base.substr(0, base.size() - std::string_view("/v1").size()));
  }
  log::info(
      "try: curl {}/chat/completions -H 'Content-Type: application/json'{} -d '{{\"model\":\"{}\","
      "\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}],\"max_tokens\":32}}'",
      base, flags.server.api_keys.empty() ? "" : " --oauth2-bearer \"$KEY\"", name);
}

}  // namespace tandem
