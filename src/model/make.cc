#include "model/make.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "base/units.h"
#include "model/made_tokenizer.h"
#include "model/weight_plan.h"
#include "model/weight_writer.h"

namespace tandem::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct Preset {
  std::string_view name;
  int32_t layers, hidden, intermediate, heads, kv_heads, head_dim, vocabulary, max_positions;
  double rope_theta;
  bool tied_embeddings;
};
constexpr std::array<Preset, 10> kPresets = {
    {{"tiny", 4, 256, 512, 8, 4, 32, 1024, 4096, 10000.0, true},
     {"1B", 22, 2048, 5632, 32, 4, 64, 32000, 4096, 10000.0, false},
     {"3B", 28, 3072, 8192, 24, 8, 128, 128256, 131072, 500000.0, true},
     {"7B", 32, 4096, 11008, 32, 32, 128, 32000, 4096, 10000.0, false},
     {"Mistral-7B", 32, 4096, 14336, 32, 8, 128, 32000, 32768, 10000.0, false},
     {"8B", 32, 4096, 14336, 32, 8, 128, 128256, 8192, 500000.0, false},
     {"13B", 40, 5120, 13824, 40, 40, 128, 32000, 4096, 10000.0, false},
     {"14B", 48, 5120, 13824, 40, 8, 128, 152064, 32768, 1000000.0, false},
     {"34B", 60, 7168, 20480, 56, 8, 128, 64000, 4096, 5000000.0, false},
     {"70B", 80, 8192, 28672, 64, 8, 128, 32000, 4096, 10000.0, false}}};

struct Made {
  const char* name;
  const char* model_type;
};
Made made_architecture(Architecture architecture) {
  switch (architecture) {
    case Architecture::kMistral:
      return {"MistralForCausalLM", "mistral"};
    case Architecture::kQwen2:
      return {"Qwen2ForCausalLM", "qwen2"};
    case Architecture::kQwen3:
      return {"Qwen3ForCausalLM", "qwen3"};
    case Architecture::kLlama:
      break;
  }
  return {"LlamaForCausalLM", "llama"};
}

std::string config_text(const ModelConfig& config) {
  const Made made = made_architecture(config.architecture);
  ordered_json json = {{"architectures", {made.name}},
                       {"model_type", made.model_type},
                       {"attention_dropout", 0.0},
                       {"bos_token_id", kMadeBos},
                       {"eos_token_id", {kMadeEos, kMadeTurnEnd}},
                       {"head_dim", config.head_dim},
                       {"hidden_act", "silu"},
                       {"hidden_size", config.hidden},
                       {"initializer_range", 0.02},
                       {"intermediate_size", config.intermediate},
                       {"max_position_embeddings", config.max_positions},
                       {"num_attention_heads", config.heads},
                       {"num_hidden_layers", config.layers},
                       {"num_key_value_heads", config.kv_heads},
                       // Through decimal, so that 1e-5 is written as 1e-05.
                       {"rms_norm_eps", std::stod(fmt::format("{:g}", config.rms_epsilon))},
                       {"rope_scaling", nullptr},
                       {"rope_theta", config.rope_theta},
                       {"tie_word_embeddings", config.tied_embeddings},
                       {"torch_dtype", element_name(config.checkpoint_type)},
                       {"use_cache", true},
                       {"vocab_size", config.vocabulary}};
  if (config.architecture == Architecture::kLlama) {
    json["attention_bias"] = false;
    json["mlp_bias"] = false;
  } else if (config.architecture == Architecture::kMistral) {
    json["sliding_window"] = nullptr;
  } else {
    json["use_sliding_window"] = false;
  }
  if (const auto* rope = std::get_if<Llama3Rope>(&config.rope_scaling)) {
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", rope->factor},
                            {"low_freq_factor", rope->low_frequency_factor},
                            {"high_freq_factor", rope->high_frequency_factor},
                            {"original_max_position_embeddings", rope->original_max_positions}};
  }
  return json.dump(1) + "\n";
}

std::string generation_text() {
  const ordered_json json = {{"bos_token_id", kMadeBos},
                             {"eos_token_id", {kMadeEos, kMadeTurnEnd}},
                             {"do_sample", true},
                             {"temperature", 1.0}};
  return json.dump(1) + "\n";
}

// Every matrix keeps the size of what it is given; what is added to the residual is made smaller by
// the number of additions, so that their sum stays near 1. Logits get a deviation of 2.
Normal distribution_of(const WeightJob& job, const ModelConfig& config) {
  if (job.tensor.ends_with("norm.weight")) {
    return {1.0F, 0.05F};
  }
  if (job.tensor.ends_with(".bias")) {
    return {0.0F, 0.2F};
  }
  const auto gain = [](double size) { return static_cast<float>(1.0 / std::sqrt(size)); };
  const auto depth = static_cast<double>(job.k.logical);
  if (job.tensor.ends_with("o_proj.weight") || job.tensor.ends_with("down_proj.weight")) {
    return {0.0F, gain(depth * 2.0 * config.layers) * 1.5F};
  }
  if (job.tensor == "model.embed_tokens.weight" && !config.tied_embeddings) {
    return {0.0F, 0.5F};
  }
  if (job.tensor == "model.embed_tokens.weight" || job.tensor == "lm_head.weight") {
    return {0.0F, 2.0F * gain(depth)};
  }
  return {0.0F, gain(depth)};
}

RandomWeights random_weights(const MakeOptions& options, const ModelConfig& config) {
  RandomWeights weights{.tensors = {},
                        .type = config.checkpoint_type,
                        .seed = options.seed,
                        .shard_bytes = std::max<int64_t>(options.shard_bytes, 1)};
  for (const WeightJob& job : plan_weights(config, {}, device::host_formats(), {}).jobs) {
    weights.tensors.push_back({job.tensor, job.shape, distribution_of(job, config)});
  }
  return weights;
}

bool is_model_file(const fs::path& file) {
  const std::string name = file.filename().string();
  constexpr std::array<std::string_view, 5> kNames = {"config.json", "generation_config.json",
                                                      "tokenizer.json", "tokenizer_config.json",
                                                      "model.safetensors.index.json"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         file.extension() == ".safetensors";
}

// Deletes a folder that holds nothing but what make_model writes.
Status remove_model_folder(const fs::path& folder) {
  std::error_code failure;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, failure)) {
    if (!entry.is_regular_file() || !is_model_file(entry.path())) {
      return invalid_argument(fmt::format(
          "'{}' holds '{}', which is not a file of a made model, so it is not replaced; "
          "choose another folder",
          folder.string(), entry.path().filename().string()));
    }
  }
  if (!failure) {
    fs::remove_all(folder, failure);
  }
  if (failure) {
    return Error{ErrorCode::kIo,
                 fmt::format("'{}' cannot be replaced: {}", folder.string(), failure.message()),
                 {}};
  }
  return {};
}

Status check_target(const fs::path& folder, ExistingFolder existing) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) {
    return {};
  }
  if (!fs::is_directory(folder, ignored)) {
    return invalid_argument(fmt::format("'{}' is a file; name a folder to make", folder.string()));
  }
  if (existing == ExistingFolder::kRefuse && !fs::is_empty(folder, ignored)) {
    return invalid_argument(fmt::format(
        "'{}' exists and is not empty; choose another folder, or replace it with --force",
        folder.string()));
  }
  return {};
}

Status write_files(const MakeOptions& options, const ModelConfig& config, const fs::path& folder) {
  RETURN_IF_ERROR(write_text_file(folder / "generation_config.json", generation_text()));
  RETURN_IF_ERROR(
      write_text_file(folder / "tokenizer.json", made_tokenizer_json(config.vocabulary)));
  RETURN_IF_ERROR(write_text_file(folder / "tokenizer_config.json",
                                  made_tokenizer_config_json(config.max_positions)));
  RETURN_IF_ERROR(
      write_random_weights(random_weights(options, config), folder, options.on_progress));
  return write_text_file(folder / "config.json", config_text(options.config));
}

}  // namespace

Result<ModelConfig> preset_config(std::string_view name) {
  for (const Preset& preset : kPresets) {
    if (preset.name == name) {
      ModelConfig config{.architecture = Architecture::kLlama,
                         .architecture_name = "LlamaForCausalLM",
                         .layers = preset.layers,
                         .hidden = preset.hidden,
                         .intermediate = preset.intermediate,
                         .heads = preset.heads,
                         .kv_heads = preset.kv_heads,
                         .head_dim = preset.head_dim,
                         .vocabulary = preset.vocabulary,
                         .max_positions = preset.max_positions,
                         .rms_epsilon = 1e-5F,
                         .rope_theta = preset.rope_theta,
                         .rope_scaling = {},
                         .tied_embeddings = preset.tied_embeddings,
                         .qkv_bias = false,
                         .checkpoint_type = ElementType::kBF16,
                         .eos_token_ids = {kMadeEos, kMadeTurnEnd},
                         .bos_token_id = kMadeBos};
      if (name == "3B") {
        config.rope_scaling = Llama3Rope{.factor = 32.0,
                                         .low_frequency_factor = 1.0,
                                         .high_frequency_factor = 4.0,
                                         .original_max_positions = 8192};
      }
      return config;
    }
  }
  return invalid_argument(
      fmt::format("there is no preset '{}'; known are tiny, 1B, 3B, 7B, Mistral-7B, 8B, 13B, 14B, "
                  "34B and 70B",
                  name),
      "preset");
}

Status make_model(const MakeOptions& options, const fs::path& folder) {
  // The same checks, and the same words, as for any model.
  ASSIGN_OR_RETURN(const ModelConfig config, parse_config(config_text(options.config)));
  if (config.vocabulary < kMinMadeVocabulary || config.vocabulary > kMaxMadeVocabulary) {
    return invalid_argument(
        fmt::format("the vocabulary is {}, but must be from {} (256 bytes and the special tokens) "
                    "to {}",
                    config.vocabulary, kMinMadeVocabulary, kMaxMadeVocabulary),
        "vocab");
  }
  std::error_code failure;
  fs::path target = fs::absolute(folder, failure).lexically_normal();
  if (!target.has_filename()) {
    target = target.parent_path();  // "models/tiny/"
  }
  RETURN_IF_ERROR(check_target(target, options.existing));
  fs::path partial = target;
  partial += ".partial";
  if (fs::exists(partial, failure)) {
    RETURN_IF_ERROR(remove_model_folder(partial));
  }
  fs::create_directories(partial, failure);
  if (failure) {
    return Error{ErrorCode::kIo,
                 fmt::format("'{}' cannot be made: {}", partial.string(), failure.message()),
                 {}};
  }
  Status written = write_files(options, config, partial);
  if (written.ok() && fs::exists(target, failure) && !fs::is_empty(target, failure)) {
    written = remove_model_folder(target);
  }
  if (written.ok()) {
    fs::rename(partial, target, failure);
    if (failure) {
      written = Error{ErrorCode::kIo,
                      fmt::format("'{}' cannot be renamed to '{}': {}", partial.string(),
                                  target.string(), failure.message()),
                      {}};
    }
  }
  if (!written.ok()) {
    fs::remove_all(partial, failure);
  }
  return written;
}

}  // namespace tandem::model
