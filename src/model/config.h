// A model's shape as its config.json states it, checked. No files, no weights. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/element_type.h"
#include "base/ids.h"
#include "base/result.h"

namespace tandem::model {

enum class Architecture : uint8_t { kLlama, kQwen2 };

// rope_type "llama3": low frequencies divided by factor, high ones kept, smooth between.
struct Llama3Rope {
  double factor = 8.0;
  double low_frequency_factor = 1.0;
  double high_frequency_factor = 4.0;
  int32_t original_max_positions = 8192;
};

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  std::string architecture_name;  // "LlamaForCausalLM"
  int32_t layers = 0;
  int32_t hidden = 0;
  int32_t intermediate = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;  // even
  int32_t vocabulary = 0;
  int32_t max_positions = 0;
  float rms_epsilon = 1e-6F;
  double rope_theta = 10000.0;
  std::optional<Llama3Rope> llama3_rope;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  ElementType checkpoint_type = ElementType::kBF16;
  std::vector<TokenId> eos_token_ids;  // of config.json; generation_config.json may say more
  std::optional<TokenId> bos_token_id;
};

// Parses the text of a config.json. Errors name the field, what it holds, and what would do.
Result<ModelConfig> parse_config(const std::string& json_text);

// inverse frequency of each rotated pair, RoPE scaling applied: [head_dim / 2].
std::vector<double> rope_inverse_frequencies(const ModelConfig& config);

int64_t parameter_count(const ModelConfig& config);

// Bytes of K and V of one token, all layers, as stored (head dim padded).
int64_t kv_bytes_per_token(const ModelConfig& config, ElementType kv_type);

}  // namespace tandem::model
