#include "model/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "gguf/dequantise.h"
#include "model/json_fields.h"
#include "model/safetensors.h"

namespace tandem::model {
namespace {

using gguf::Metadata;
using nlohmann::json;

struct NamePair {
  std::string_view gguf;
  std::string_view plan;
};
constexpr std::array<NamePair, 3> kWholeNames = {
    {{"token_embd.weight", "model.embed_tokens.weight"},
     {"output_norm.weight", "model.norm.weight"},
     {"output.weight", "lm_head.weight"}}};
constexpr std::array<NamePair, 14> kLayerNames = {
    {{"attn_norm.weight", "input_layernorm.weight"},
     {"attn_q.weight", "self_attn.q_proj.weight"},
     {"attn_q.bias", "self_attn.q_proj.bias"},
     {"attn_k.weight", "self_attn.k_proj.weight"},
     {"attn_k.bias", "self_attn.k_proj.bias"},
     {"attn_v.weight", "self_attn.v_proj.weight"},
     {"attn_v.bias", "self_attn.v_proj.bias"},
     {"attn_q_norm.weight", "self_attn.q_norm.weight"},
     {"attn_k_norm.weight", "self_attn.k_norm.weight"},
     {"attn_output.weight", "self_attn.o_proj.weight"},
     {"ffn_norm.weight", "post_attention_layernorm.weight"},
     {"ffn_gate.weight", "mlp.gate_proj.weight"},
     {"ffn_up.weight", "mlp.up_proj.weight"},
     {"ffn_down.weight", "mlp.down_proj.weight"}}};
constexpr std::string_view kLayerPrefix = "blk.";
constexpr std::string_view kPlanPrefix = "model.layers.";
constexpr std::string_view kRopeDivisors = "rope_freqs.weight";

struct LayerName {
  std::string_view number;
  std::string_view rest;
};

// "blk.12.attn_q.weight" after "blk.": 12, "attn_q.weight".
std::optional<LayerName> split_layer(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) {
    return std::nullopt;
  }
  name.remove_prefix(prefix.size());
  const size_t dot = name.find('.');
  if (dot == 0 || dot == std::string_view::npos || dot > 6 ||
      !std::all_of(name.begin(), name.begin() + static_cast<ptrdiff_t>(dot),
                   [](char c) { return c >= '0' && c <= '9'; })) {
    return std::nullopt;
  }
  return LayerName{name.substr(0, dot), name.substr(dot + 1)};
}

// The fields of a config.json, each remembered with the key that it comes from.
class FieldsOfMetadata {
 public:
  FieldsOfMetadata(const Metadata& metadata, std::string architecture)
      : metadata_(metadata), architecture_(std::move(architecture)) {}

  [[nodiscard]] std::string key(std::string_view rest) const {
    return fmt::format("{}.{}", architecture_, rest);
  }
  void set(std::string_view field, json value, std::string key) {
    json_[std::string(field)] = std::move(value);
    names_[std::string(field)] = std::move(key);
  }
  Status integer(std::string_view field, std::string_view rest) {
    names_[std::string(field)] = key(rest);
    ASSIGN_OR_RETURN(const std::optional<int64_t> value, metadata_.integer(key(rest)));
    if (value) {
      json_[std::string(field)] = *value;
    }
    return {};
  }
  // One for every layer: files may say them layer by layer.
  Status same_in_layers(std::string_view field, std::string_view rest) {
    names_[std::string(field)] = key(rest);
    ASSIGN_OR_RETURN(const auto values, metadata_.integers(key(rest)));
    if (!values) {
      return {};
    }
    if (values->empty() ||
        std::ranges::any_of(*values, [&](int64_t value) { return value != values->front(); })) {
      return metadata_.unsupported(key(rest),
                                   "differs between layers; only models whose layers are alike "
                                   "are supported");
    }
    json_[std::string(field)] = values->front();
    return {};
  }
  Status number(std::string_view field, std::string_view rest) {
    names_[std::string(field)] = key(rest);
    ASSIGN_OR_RETURN(const std::optional<double> value, metadata_.number(key(rest)));
    if (value) {
      json_[std::string(field)] = *value;
    }
    return {};
  }
  void rename(std::string path, std::string key) { names_[std::move(path)] = std::move(key); }
  [[nodiscard]] JsonFields fields() const {
    return JsonFields::of(metadata_.file(), json_, names_);
  }

 private:
  const Metadata& metadata_;
  std::string architecture_;
  json json_ = json::object();
  std::map<std::string, std::string> names_;
};

// What would change the mathematics and is not built.
Status refuse_unbuilt(const Metadata& metadata, const FieldsOfMetadata& fields,
                      const gguf::Files& files) {
  for (const char* rest :
       {"expert_count", "attention.scale", "attention.clamp_kqv", "attention.max_alibi_bias",
        "attention.temperature_scale", "logit_scale", "residual_scale", "embedding_scale",
        "rope.scaling.yarn_log_multiplier"}) {
    const std::string key = fields.key(rest);
    ASSIGN_OR_RETURN(const std::optional<double> value, metadata.number(key));
    if (value.value_or(0.0) != 0.0) {
      return metadata.unsupported(key,
                                  fmt::format("is {:g}; models with it are not supported", *value));
    }
  }
  for (const char* name : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
    if (files.find(name) != nullptr) {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("{}: tensor '{}' belongs to RoPE scaling longrope, which is not "
                               "supported",
                               metadata.file(), name),
                   name};
    }
  }
  for (const auto& [name, placed] : files.tensors()) {
    const bool computed_anew = name == kRopeDivisors || name.ends_with(".attn_rot_embd.weight");
    if (!computed_anew && !plan_name_of_gguf(name)) {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("{}: tensor '{}' has no place in the supported architectures: {}",
                               files.parts()[static_cast<size_t>(placed.part)].name,
                               gguf::shown(name), supported_architectures()),
                   std::string(name)};
    }
  }
  return {};
}

// Tensors whose names are known and whose place this model does not have.
Status refuse_unused(const gguf::Files& files, const ModelConfig& config) {
  for (const auto& [name, placed] : files.tensors()) {
    const std::optional<LayerName> layer = split_layer(name, kLayerPrefix);
    if (!layer) {
      continue;
    }
    int32_t number = 0;
    std::from_chars(layer->number.data(), layer->number.data() + layer->number.size(), number);
    const bool of_a_layer = number < config.layers && layer->number == std::to_string(number);
    const bool norm = layer->rest == "attn_q_norm.weight" || layer->rest == "attn_k_norm.weight";
    if (!of_a_layer || (norm && !config.qk_norm)) {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("{}: tensor '{}' has no place in a model of {} layers and "
                               "architecture {}",
                               files.parts()[static_cast<size_t>(placed.part)].name,
                               gguf::shown(name), config.layers, config.architecture_name),
                   std::string(name)};
    }
  }
  return {};
}

Result<std::string> read_architecture(const Metadata& metadata) {
  ASSIGN_OR_RETURN(const std::optional<std::string> type, metadata.string("general.type"));
  if (type && *type != "model") {
    return metadata.unsupported(
        "general.type",
        fmt::format("is '{}'; a file with a whole model is needed", gguf::shown(*type)));
  }
  ASSIGN_OR_RETURN(const std::optional<std::string> name, metadata.string("general.architecture"));
  if (!name) {
    return metadata.error("general.architecture",
                          "is missing; supported are llama (Llama and Mistral), qwen2 and qwen3");
  }
  if (*name != "llama" && *name != "qwen2" && *name != "qwen3") {
    return metadata.unsupported("general.architecture",
                                fmt::format("is '{}'; supported are llama (Llama and Mistral), "
                                            "qwen2 and qwen3",
                                            gguf::shown(*name)));
  }
  return *name;
}

// Llama and Mistral have one name; a window makes the difference.
Status set_architecture(const Metadata& metadata, const std::string& name,
                        FieldsOfMetadata& fields) {
  const std::string key = fields.key("attention.sliding_window");
  ASSIGN_OR_RETURN(const std::optional<int64_t> window, metadata.integer(key));
  std::string_view model = name == "qwen2"   ? "Qwen2ForCausalLM"
                           : name == "qwen3" ? "Qwen3ForCausalLM"
                                             : "LlamaForCausalLM";
  if (window.value_or(0) != 0) {
    if (name != "llama") {
      return metadata.unsupported(key, fmt::format("is {}; windows of {} models are not supported "
                                                   "in GGUF, use the model's folder",
                                                   *window, name));
    }
    model = "MistralForCausalLM";
    fields.set("sliding_window", *window, key);
  }
  fields.set("architectures", json::array({model}), "general.architecture");
  return {};
}

Status set_shape(const Metadata& metadata, const gguf::Files& files, FieldsOfMetadata& fields) {
  RETURN_IF_ERROR(fields.integer("num_hidden_layers", "block_count"));
  RETURN_IF_ERROR(fields.integer("hidden_size", "embedding_length"));
  RETURN_IF_ERROR(fields.integer("max_position_embeddings", "context_length"));
  RETURN_IF_ERROR(fields.same_in_layers("intermediate_size", "feed_forward_length"));
  RETURN_IF_ERROR(fields.same_in_layers("num_attention_heads", "attention.head_count"));
  RETURN_IF_ERROR(fields.same_in_layers("num_key_value_heads", "attention.head_count_kv"));
  RETURN_IF_ERROR(fields.integer("head_dim", "attention.key_length"));
  RETURN_IF_ERROR(fields.number("rms_norm_eps", "attention.layer_norm_rms_epsilon"));
  if (!metadata.has(fields.key("attention.layer_norm_rms_epsilon"))) {
    return metadata.error(fields.key("attention.layer_norm_rms_epsilon"),
                          "is missing; convert the model again");
  }
  ASSIGN_OR_RETURN(const auto key_length, metadata.integer(fields.key("attention.key_length")));
  ASSIGN_OR_RETURN(const auto value_length, metadata.integer(fields.key("attention.value_length")));
  if (value_length && value_length != key_length && key_length) {
    return metadata.unsupported(
        fields.key("attention.value_length"),
        fmt::format("is {} and attention.key_length {}; only equal ones are supported",
                    *value_length, *key_length));
  }
  const gguf::Files::PlacedTensor* embedding = files.find("token_embd.weight");
  if (embedding != nullptr) {
    fields.set("vocab_size", embedding->tensor->shape.front(), "token_embd.weight");
    fields.set("tie_word_embeddings", files.find("output.weight") == nullptr, "output.weight");
  } else {
    ASSIGN_OR_RETURN(const auto tokens, metadata.strings("tokenizer.ggml.tokens"));
    fields.set("vocab_size", tokens ? tokens->size() : 0, "tokenizer.ggml.tokens");
  }
  fields.set("attention_bias", files.find("blk.0.attn_q.bias") != nullptr, "blk.0.attn_q.bias");
  return {};
}

Status set_yarn(const Metadata& metadata, const FieldsOfMetadata& fields, json& scaling) {
  const std::pair<const char*, const char*> parts[] = {
      {"beta_fast", "rope.scaling.yarn_beta_fast"}, {"beta_slow", "rope.scaling.yarn_beta_slow"}};
  for (const auto& [field, rest] : parts) {
    ASSIGN_OR_RETURN(const std::optional<double> value, metadata.number(fields.key(rest)));
    if (value) {
      scaling[field] = *value;
    }
  }
  ASSIGN_OR_RETURN(const auto original,
                   metadata.integer(fields.key("rope.scaling.original_context_length")));
  if (original) {
    scaling["original_max_position_embeddings"] = *original;
  }
  // Multiplies what YaRN itself gives.
  ASSIGN_OR_RETURN(const auto attention, metadata.number(fields.key("rope.scaling.attn_factor")));
  const double factor = scaling.value("factor", 1.0);
  if (attention && factor >= 1.0) {
    scaling["attention_factor"] = *attention * (1.0 + 0.1 * std::log(factor));
  }
  return {};
}

Status set_rope(const Metadata& metadata, FieldsOfMetadata& fields) {
  RETURN_IF_ERROR(fields.number("rope_theta", "rope.freq_base"));
  const std::string type_key = fields.key("rope.scaling.type");
  ASSIGN_OR_RETURN(const std::optional<std::string> given, metadata.string(type_key));
  ASSIGN_OR_RETURN(std::optional<double> factor,
                   metadata.number(fields.key("rope.scaling.factor")));
  // Older files have the factor alone, under another name.
  ASSIGN_OR_RETURN(const std::optional<double> old,
                   metadata.number(fields.key("rope.scale_linear")));
  factor = factor ? factor : old;
  const std::string type = given.value_or(factor.value_or(1.0) != 1.0 ? "linear" : "none");
  if (type == "none") {
    return {};
  }
  if (type != "linear" && type != "yarn") {
    return metadata.unsupported(type_key, fmt::format("is '{}'; supported are none, linear and "
                                                      "yarn",
                                                      gguf::shown(type)));
  }
  json scaling = {{"rope_type", type}};
  if (factor) {
    scaling["factor"] = *factor;
  }
  if (type == "yarn") {
    RETURN_IF_ERROR(set_yarn(metadata, fields, scaling));
  }
  fields.rename("rope_scaling.factor", fields.key("rope.scaling.factor"));
  fields.rename("rope_scaling.original_max_position_embeddings",
                fields.key("rope.scaling.original_context_length"));
  fields.rename("rope_scaling.attention_factor", fields.key("rope.scaling.attn_factor"));
  fields.rename("rope_scaling.beta_fast", fields.key("rope.scaling.yarn_beta_fast"));
  fields.rename("rope_scaling.beta_slow", fields.key("rope.scaling.yarn_beta_slow"));
  fields.set("rope_scaling", std::move(scaling), type_key);
  return {};
}

// The type that most weights have; quantised ones are served as bf16 unless asked otherwise.
std::string_view usual_type(const gguf::Files& files) {
  int64_t f32 = 0;
  int64_t f16 = 0;
  int64_t others = 0;
  for (const auto& [name, placed] : files.tensors()) {
    const gguf::BlockType type = placed.tensor->type;
    if (placed.tensor->shape.size() < 2) {
      continue;
    }
    (type == gguf::BlockType::kF32   ? f32
     : type == gguf::BlockType::kF16 ? f16
                                     : others) += placed.tensor->bytes();
  }
  return f32 > std::max(f16, others) ? "float32" : f16 > others ? "float16" : "bfloat16";
}

// Tokens that end an answer in the chat formats of the supported families, where a file names one
// of them only.
constexpr std::array<std::string_view, 5> kEndNames = {
    "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|im_end|>", "<|endoftext|>"};

Status set_special_tokens(const Metadata& metadata, FieldsOfMetadata& fields) {
  json ends = json::array();
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    ASSIGN_OR_RETURN(const std::optional<int64_t> id, metadata.integer(key));
    if (id) {
      ends.push_back(*id);
    }
  }
  ASSIGN_OR_RETURN(const auto tokens, metadata.strings("tokenizer.ggml.tokens"));
  ASSIGN_OR_RETURN(const auto types, metadata.integers("tokenizer.ggml.token_type"));
  constexpr int64_t kControl = 3;
  if (tokens && types) {
    for (size_t i = 0; i < std::min(tokens->size(), types->size()); ++i) {
      if ((*types)[i] == kControl &&
          std::ranges::find(kEndNames, (*tokens)[i]) != kEndNames.end()) {
        ends.push_back(i);
      }
    }
  }
  fields.set("eos_token_id", std::move(ends), "tokenizer.ggml.eos_token_id");
  ASSIGN_OR_RETURN(const auto begin, metadata.integer("tokenizer.ggml.bos_token_id"));
  if (begin) {
    fields.set("bos_token_id", *begin, "tokenizer.ggml.bos_token_id");
  }
  return {};
}

// rope_freqs.weight: what the frequencies of each pair are divided by.
Status read_divisors(const gguf::Files& files, ModelConfig& config) {
  const gguf::Files::PlacedTensor* placed = files.find(kRopeDivisors);
  if (placed == nullptr) {
    return {};
  }
  const gguf::Tensor& tensor = *placed->tensor;
  const gguf::Files::Part& part = files.parts()[static_cast<size_t>(placed->part)];
  const std::vector<int64_t> wanted = {config.head_dim / 2};
  const auto error = [&](std::string_view message) {
    return invalid_argument(fmt::format("{}: tensor '{}' {}; convert the model again", part.name,
                                        kRopeDivisors, message));
  };
  if (tensor.shape != wanted || tensor.type != gguf::BlockType::kF32) {
    return error(fmt::format("is {} of shape {}, but must be F32 of shape {}",
                             gguf::type_name(tensor.type), format_shape(tensor.shape),
                             format_shape(wanted)));
  }
  if (!std::holds_alternative<std::monostate>(config.rope_scaling)) {
    return error("is there beside another scaling of RoPE");
  }
  RETURN_IF_ERROR(part.mapped->populate(tensor.begin, tensor.end));
  DividedRope rope;
  rope.divisors.resize(static_cast<size_t>(wanted.front()));
  gguf::dequantise(tensor.type, part.mapped->bytes().data() + tensor.begin,
                   std::span<float>(rope.divisors));
  for (const float divisor : rope.divisors) {
    if (!(divisor >= 1e-6F && divisor <= 1e6F)) {
      return error(fmt::format("holds {}, but divisors must be from 1e-6 to 1e6", divisor));
    }
  }
  if (std::ranges::any_of(rope.divisors, [](float divisor) { return divisor != 1.0F; })) {
    config.rope_scaling = std::move(rope);
  }
  return {};
}

}  // namespace

std::optional<std::string> plan_name_of_gguf(std::string_view name) {
  for (const NamePair& pair : kWholeNames) {
    if (pair.gguf == name) {
      return std::string(pair.plan);
    }
  }
  if (const std::optional<LayerName> layer = split_layer(name, kLayerPrefix)) {
    for (const NamePair& pair : kLayerNames) {
      if (pair.gguf == layer->rest) {
        return fmt::format("{}{}.{}", kPlanPrefix, layer->number, pair.plan);
      }
    }
  }
  return std::nullopt;
}

std::string gguf_name_of_plan(std::string_view name) {
  for (const NamePair& pair : kWholeNames) {
    if (pair.plan == name) {
      return std::string(pair.gguf);
    }
  }
  if (const std::optional<LayerName> layer = split_layer(name, kPlanPrefix)) {
    for (const NamePair& pair : kLayerNames) {
      if (pair.plan == layer->rest) {
        return fmt::format("{}{}.{}", kLayerPrefix, layer->number, pair.gguf);
      }
    }
  }
  return std::string(name);
}

Result<ModelConfig> gguf_config(const gguf::Files& files) {
  const Metadata& metadata = files.metadata();
  ASSIGN_OR_RETURN(const std::string name, read_architecture(metadata));
  FieldsOfMetadata fields(metadata, name);
  RETURN_IF_ERROR(refuse_unbuilt(metadata, fields, files));
  RETURN_IF_ERROR(set_architecture(metadata, name, fields));
  RETURN_IF_ERROR(set_shape(metadata, files, fields));
  RETURN_IF_ERROR(set_rope(metadata, fields));
  RETURN_IF_ERROR(set_special_tokens(metadata, fields));
  fields.set("dtype", usual_type(files), "general.file_type");
  ASSIGN_OR_RETURN(ModelConfig config, parse_config(fields.fields()));
  RETURN_IF_ERROR(refuse_unused(files, config));
  const std::string key = fields.key("rope.dimension_count");
  ASSIGN_OR_RETURN(const std::optional<int64_t> rotated, metadata.integer(key));
  if (rotated.value_or(config.head_dim) != config.head_dim) {
    return metadata.unsupported(key, fmt::format("is {}, but heads have {} dimensions; models that "
                                                 "rotate a part of each head are not supported",
                                                 *rotated, config.head_dim));
  }
  RETURN_IF_ERROR(read_divisors(files, config));
  return config;
}

Result<GenerationDefaults> gguf_generation_defaults(const Metadata& metadata, int32_t vocabulary) {
  const std::pair<const char*, const char*> parts[] = {
      {"temperature", "general.sampling.temp"},
      {"top_p", "general.sampling.top_p"},
      {"min_p", "general.sampling.min_p"},
      {"repetition_penalty", "general.sampling.penalty_repeat"}};
  json object = json::object();
  std::map<std::string, std::string> names;
  for (const auto& [field, key] : parts) {
    names[field] = key;
    ASSIGN_OR_RETURN(const std::optional<double> value, metadata.number(key));
    if (value) {
      object[field] = *value;
    }
  }
  names["top_k"] = "general.sampling.top_k";
  ASSIGN_OR_RETURN(const std::optional<int64_t> top_k, metadata.integer(names["top_k"]));
  if (top_k) {
    object["top_k"] = *top_k;
  }
  return parse_generation_config(JsonFields::of(metadata.file(), std::move(object), names),
                                 vocabulary);
}

}  // namespace tandem::model
