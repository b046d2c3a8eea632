#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "kernels/kv_layout.h"
#include "model/config_rope.h"
#include "model/json_fields.h"

namespace tandem::model {
namespace {

// Far above any model, far below what could overflow a size in 64 bits.
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxHidden = int64_t{1} << 18;
constexpr int64_t kMaxIntermediate = int64_t{1} << 22;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = kernels::kMaxPaddedHeadDim;
constexpr int64_t kUsualWindow = 4096;          // where sliding_window is not given
constexpr int64_t kUsualFirstWindowLayer = 28;  // where max_window_layers is not given
constexpr int64_t kQwen3HeadDim = 128;          // where head_dim is not given
constexpr int64_t kMaxVocabulary = int64_t{1} << 24;

struct Family {
  std::string_view name;
  std::string_view model_type;
  Architecture architecture;
};
constexpr std::array<Family, 4> kFamilies = {
    {{"LlamaForCausalLM", "llama", Architecture::kLlama},
     {"MistralForCausalLM", "mistral", Architecture::kMistral},
     {"Qwen2ForCausalLM", "qwen2", Architecture::kQwen2},
     {"Qwen3ForCausalLM", "qwen3", Architecture::kQwen3}}};

int32_t narrow(int64_t value) { return static_cast<int32_t>(value); }

Status parse_architecture(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, fields.strings("architectures"));
  ASSIGN_OR_RETURN(const std::optional<std::string> type, fields.string("model_type"));
  if (names.empty() && !type) {
    return fields.error("architectures",
                        fmt::format("is missing; supported are {}", supported_architectures()));
  }
  const std::string name = names.empty() ? type.value_or("") : names.front();
  for (const Family& family : kFamilies) {
    if (name == (names.empty() ? family.model_type : family.name)) {
      config.architecture = family.architecture;
      config.architecture_name = family.name;
      return {};
    }
  }
  return fields.unsupported(
      "architectures", fmt::format("'{}' is not supported; supported are {}", name.substr(0, 80),
                                   supported_architectures()));
}

Status parse_shape(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const int64_t layers,
                   fields.required_integer("num_hidden_layers", {1, kMaxLayers}));
  ASSIGN_OR_RETURN(const int64_t hidden, fields.required_integer("hidden_size", {1, kMaxHidden}));
  ASSIGN_OR_RETURN(const int64_t intermediate,
                   fields.required_integer("intermediate_size", {1, kMaxIntermediate}));
  ASSIGN_OR_RETURN(const int64_t heads,
                   fields.required_integer("num_attention_heads", {1, kMaxHeads}));
  ASSIGN_OR_RETURN(const std::optional<int64_t> kv_heads,
                   fields.integer("num_key_value_heads", {1, kMaxHeads}));
  ASSIGN_OR_RETURN(const std::optional<int64_t> head_dim,
                   fields.integer("head_dim", {2, kMaxHeadDim}));
  ASSIGN_OR_RETURN(const int64_t vocabulary,
                   fields.required_integer("vocab_size", {1, kMaxVocabulary}));
  ASSIGN_OR_RETURN(const std::optional<int64_t> positions,
                   fields.integer("max_position_embeddings", {1, kMaxPositions}));
  config.layers = narrow(layers);
  config.hidden = narrow(hidden);
  config.intermediate = narrow(intermediate);
  config.heads = narrow(heads);
  config.kv_heads = narrow(kv_heads.value_or(heads));
  config.vocabulary = narrow(vocabulary);
  config.max_positions = narrow(positions.value_or(2048));
  if (config.heads % config.kv_heads != 0) {
    return fields.error("num_key_value_heads",
                        fmt::format("is {}, but must divide num_attention_heads ({})",
                                    config.kv_heads, config.heads));
  }
  if (!head_dim && config.architecture != Architecture::kQwen3 && hidden % heads != 0) {
    return fields.error("num_attention_heads",
                        fmt::format("is {}, but must divide hidden_size ({}) where head_dim is "
                                    "not given",
                                    heads, hidden));
  }
  // Qwen3 alone does not derive it.
  const int64_t usual =
      config.architecture == Architecture::kQwen3 ? kQwen3HeadDim : hidden / heads;
  config.head_dim = narrow(head_dim.value_or(usual));
  if (config.head_dim % 2 != 0 || config.head_dim < 2 || config.head_dim > kMaxHeadDim) {
    return fields.error(head_dim ? "head_dim" : "num_attention_heads",
                        fmt::format("gives heads of {} dimensions, but rotary embeddings need an "
                                    "even number from 2 to {}",
                                    config.head_dim, kMaxHeadDim));
  }
  return {};
}

// sliding_window, where the config names it; Mistral and Qwen have one of 4096 unless it is null.
Result<int32_t> window_size(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> given,
                   fields.integer("sliding_window", {1, kMaxPositions}));
  return narrow(given.value_or(fields.json().contains("sliding_window") ? 0 : kUsualWindow));
}

// The layers that Qwen models give a window when it is switched on: those that layer_types calls
// so, or all from max_window_layers on.
Status parse_layer_windows(const JsonFields& fields, int32_t window, ModelConfig& config) {
  ASSIGN_OR_RETURN(const std::vector<std::string> types, fields.strings("layer_types"));
  ASSIGN_OR_RETURN(const std::optional<int64_t> first,
                   fields.integer("max_window_layers", {0, int64_t{1} << 30}));
  if (!types.empty() && std::cmp_not_equal(types.size(), config.layers)) {
    return fields.error("layer_types", fmt::format("names {} layers, but num_hidden_layers is {}",
                                                   types.size(), config.layers));
  }
  for (int32_t layer = 0; layer < config.layers; ++layer) {
    bool slides = layer >= first.value_or(kUsualFirstWindowLayer);
    if (!types.empty()) {
      const std::string& type = types[static_cast<size_t>(layer)];
      slides = type == "sliding_attention";
      if (!slides && type != "full_attention") {
        return fields.unsupported("layer_types",
                                  fmt::format("names '{}'; supported are full_attention and "
                                              "sliding_attention",
                                              type.substr(0, 80)));
      }
    }
    if (slides && window == 0 && !types.empty()) {
      return fields.error("layer_types",
                          "names sliding_attention, but the config switches on no sliding_window");
    }
    config.windows.push_back(slides ? window : 0);
  }
  return {};
}

Status parse_windows(const JsonFields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const std::optional<bool> switched, fields.boolean("use_sliding_window"));
  if (config.architecture == Architecture::kLlama && switched.value_or(false)) {
    return fields.unsupported("use_sliding_window",
                              "is true, but LlamaForCausalLM has no sliding window");
  }
  ASSIGN_OR_RETURN(const int32_t window, window_size(fields));
  if (config.architecture == Architecture::kMistral) {
    config.windows.assign(static_cast<size_t>(config.layers), window);
  } else {
    RETURN_IF_ERROR(parse_layer_windows(fields, switched.value_or(false) ? window : 0, config));
  }
  // A window that no sequence fills is none: the same text, and the kernels need not look.
  if (std::all_of(config.windows.begin(), config.windows.end(),
                  [&](int32_t own) { return own == 0 || own >= config.stretched_positions; })) {
    config.windows.clear();
  }
  return {};
}

// Whatever would change the mathematics and is not built is refused, never skipped.
Status refuse_unbuilt(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const std::optional<std::string> activation, fields.string("hidden_act"));
  if (activation && *activation != "silu" && *activation != "swish") {
    return fields.unsupported("hidden_act", fmt::format("'{}' is not supported; only silu is",
                                                        activation->substr(0, 80)));
  }
  ASSIGN_OR_RETURN(const std::optional<bool> mlp_bias, fields.boolean("mlp_bias"));
  if (mlp_bias.value_or(false)) {
    return fields.unsupported("mlp_bias", "is true; biases in the MLP are not supported");
  }
  return {};
}

Status parse_element_type(const JsonFields& fields, ModelConfig& config) {
  const char* key = fields.has("dtype") ? "dtype" : "torch_dtype";
  ASSIGN_OR_RETURN(const std::optional<std::string> text, fields.string(key));
  std::string name = text.value_or("bfloat16");
  if (name.starts_with("torch.")) {
    name.erase(0, 6);
  }
  if (name == "float32" || name == "float") {
    config.checkpoint_type = ElementType::kF32;
  } else if (name == "bfloat16" || name == "auto") {
    config.checkpoint_type = ElementType::kBF16;
  } else if (name == "float16" || name == "half") {
    config.checkpoint_type = ElementType::kF16;
  } else {
    return fields.unsupported(
        key, fmt::format("'{}' is not supported; supported are float32, bfloat16 and float16",
                         name.substr(0, 80)));
  }
  return {};
}

// A model computes the same without them.
void parse_special_tokens(const JsonFields& fields, ModelConfig& config) {
  const IntegerRange range{0, config.vocabulary - 1};
  for (const int64_t id : fields.usable_integers("eos_token_id", range, config.warnings)) {
    config.eos_token_ids.push_back(narrow(id));
  }
  const std::vector<int64_t> begins =
      fields.usable_integers("bos_token_id", range, config.warnings);
  if (!begins.empty()) {
    config.bos_token_id = narrow(begins.front());
  }
}

}  // namespace

std::string_view supported_architectures() {
  return "LlamaForCausalLM (Llama 2 and 3, Yi, CodeLlama, TinyLlama), MistralForCausalLM, "
         "Qwen2ForCausalLM (Qwen2 and 2.5) and Qwen3ForCausalLM";
}

Result<ModelConfig> parse_config(const std::string& json_text) {
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::parse("config.json", json_text));
  return parse_config(fields);
}

Result<ModelConfig> parse_config(const JsonFields& fields) {
  ModelConfig config;
  RETURN_IF_ERROR(parse_architecture(fields, config));
  RETURN_IF_ERROR(parse_shape(fields, config));
  RETURN_IF_ERROR(parse_rope(fields, config));
  RETURN_IF_ERROR(refuse_unbuilt(fields));
  RETURN_IF_ERROR(parse_windows(fields, config));
  RETURN_IF_ERROR(parse_element_type(fields, config));
  ASSIGN_OR_RETURN(config.quantization, parse_quantization_config(fields, config.warnings));
  parse_special_tokens(fields, config);
  ASSIGN_OR_RETURN(const std::optional<double> epsilon, fields.number("rms_norm_eps", {0.0, 0.1}));
  config.rms_epsilon = static_cast<float>(epsilon.value_or(1e-6));
  ASSIGN_OR_RETURN(const std::optional<bool> tied, fields.boolean("tie_word_embeddings"));
  config.tied_embeddings = tied.value_or(false);
  ASSIGN_OR_RETURN(const std::optional<bool> bias, fields.boolean("attention_bias"));
  // Qwen2 always has them, Mistral never does, whatever the field says.
  config.qkv_bias = config.architecture == Architecture::kQwen2 ||
                    (config.architecture != Architecture::kMistral && bias.value_or(false));
  config.qk_norm = config.architecture == Architecture::kQwen3;
  return config;
}

}  // namespace tandem::model
