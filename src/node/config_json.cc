#include "node/config_json.h"

#include <nlohmann/json.hpp>

#include "node/option_table.h"
#include "options/option_json.h"

namespace tandem {
namespace {

// What became of the options: numbers where there were none, the policy that was chosen.
NodeOptions effective_options(const NodeOptions& options, const PlannedModel& model) {
  NodeOptions effective = options;
  effective.policy = model.policy_name;
  effective.dtype = model.format.layers.type;
  if (model.folder.stored && !model.format.from_file() && !effective.quantization) {
    effective.quantization = Quantization::kNone;  // what a file has was not kept
  }
  effective.kv_dtype = model.kv_dtype;
  effective.max_model_len = model.plan.max_model_len;
  effective.block_tokens = model.plan.block_tokens;
  effective.kv_blocks = model.plan.kv_blocks;
  effective.memory_bytes = model.plan.memory_bytes;
  effective.host_memory_bytes = options.accelerator ? model.plan.host.memory_bytes : 0;
  return effective;
}

nlohmann::ordered_json config_of(const NodeOptions& options, const PlannedModel& model) {
  const model::ModelConfig& shape = model.folder.config;
  NodeOptions effective = effective_options(options, model);
  nlohmann::ordered_json json;
  write_options(node_option_table(effective), json);
  json["model"] = std::filesystem::weakly_canonical(options.model).filename().string();
  json["weights"] = model.format.name();
  json["architecture"] = shape.architecture_name;
  json["device"] = model.device.caps().name;
  json["isa"] = model.device.caps().kernels;
  json["isa_chosen"] = model.device.kernels_from();
  json["threads"] = model.device.caps().threads;
  for (const device::NodeUse& node : model.device.device().host().nodes) {
    json["numa_nodes"].push_back({{"node", node.id}, {"threads", node.threads}});
  }
  json["end_tokens"] = model.folder.eos_token_ids;
  for (const MemoryPlanRow& row : model.plan.rows) {
    json["memory_plan_bytes"][row.what] = row.bytes;
  }
  if (options.accelerator.has_value()) {
    json[model.device.caps().backend] = true;
    json["host_kv_blocks"] = model.plan.host.kv_blocks;
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
