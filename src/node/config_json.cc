#include "node/config_json.h"

#include <nlohmann/json.hpp>

#include "node/time_profile.h"
#include "scheduler/policies/registry.h"

namespace tandem {
namespace {

std::string_view caching_name(PrefixCaching caching) {
  return caching == PrefixCaching::kOn ? "on" : "off";
}

nlohmann::ordered_json config_of(const NodeOptions& options, const PlannedModel& model) {
  const model::ModelConfig& shape = model.folder.config;
  nlohmann::ordered_json json;
  json["model"] = std::filesystem::weakly_canonical(options.model).filename().string();
  json["architecture"] = shape.architecture_name;
  json["device"] = model.device.caps().name;
  json["isa"] = model.device.caps().kernels;
  json["isa_chosen"] = model.device.kernels_from();
  json["threads"] = model.device.caps().threads;
  for (const device::NodeUse& node : model.device.device().host().nodes) {
    json["numa_nodes"].push_back({{"node", node.id}, {"threads", node.threads}});
  }
  json["dtype"] = std::string(element_name(model.dtype));
  json["kv_cache_dtype"] = std::string(element_name(model.kv_dtype));
  json["policy"] = model.policy_name;
  for (const PolicyOption* option : policy_options()) {
    json[config_key(*option)] = options.policy_options[*option];
  }
  if (wants_profile(options)) {
    json["time_model"] = std::string(time_model_name(options.profile.model));
    json["admission"] = options.admission == AdmissionMode::kOn ? "on" : "off";
  }
  json["max_model_len"] = model.plan.max_model_len;
  json["max_num_seqs"] = options.max_num_seqs;
  json["max_num_batched_tokens"] = options.max_num_batched_tokens;
  json["block_size"] = model.plan.block_tokens;
  json["kv_blocks"] = model.plan.kv_blocks;
  json["prefix_caching"] = std::string(caching_name(options.prefix_caching));
  json["max_queue"] = options.max_queue;
  json["max_queue_flex"] = options.max_queue_flex;
  json["seed"] = options.seed;
  json["end_tokens"] = model.folder.eos_token_ids;
  for (const MemoryPlanRow& row : model.plan.rows) {
    json["memory_plan_bytes"][row.what] = row.bytes;
  }
  json["memory_bytes"] = model.plan.memory_bytes;
  if (options.accelerator.has_value()) {
    json[model.device.caps().backend] = true;
    json["host_kv_blocks"] = model.plan.host.kv_blocks;
    json["host_memory_bytes"] = model.plan.host.memory_bytes;
    json["group_stages"] = options.group_stages;
    for (const MemoryPlanRow& row : model.plan.host.rows) {
      json["host_memory_plan_bytes"][row.what] = row.bytes;
    }
  }
  return json;
}

}  // namespace

std::string effective_config_json(const NodeOptions& options, const PlannedModel& model) {
  return config_of(options, model).dump();
}

std::string record_head(const NodeOptions& options, const PlannedModel& model,
                        const latency::Profile* profile) {
  nlohmann::ordered_json head = config_of(options, model);
  if (profile != nullptr) {
    head["time_profile"] = nlohmann::ordered_json::parse(profile_text(*profile));
  }
  return head.dump();
}

}  // namespace tandem
