// A model's shape as its config.json states it, checked. No files, no weights. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/element_type.h"
#include "base/ids.h"
#include "base/result.h"
#include "model/quantization_config.h"

namespace tandem::model {

class JsonFields;

enum class Architecture : uint8_t { kLlama, kMistral, kQwen2, kQwen3 };

// rope_type "llama3": low frequencies divided by factor, high ones kept, smooth between.
struct Llama3Rope {
  double factor = 8.0;
  double low_frequency_factor = 1.0;
  double high_frequency_factor = 4.0;
  int32_t original_max_positions = 8192;
};

// rope_type "linear": every frequency divided by factor.
struct LinearRope {
  double factor = 1.0;
};

// rope_type "dynamic": a larger base where more than max_positions positions are served; nothing
// changes up to them. docs/decisions/007.
struct DynamicRope {
  double factor = 1.0;
};

// rope_type "yarn": frequencies that turn less than beta_slow times within the original context are
// divided by factor, those that turn more than beta_fast times are kept, smooth between; and cos
// and sin are multiplied.
struct YarnRope {
  double factor = 1.0;
  double attention_factor = 1.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;  // the bounds of the smooth part are whole pairs
  int32_t original_max_positions = 0;
};

// A divisor for the frequency of each rotated pair, as GGUF files hold what "llama3" comes to.
struct DividedRope {
  std::vector<float> divisors;  // [head_dim / 2]
};

using RopeScaling =
    std::variant<std::monostate, Llama3Rope, LinearRope, DynamicRope, YarnRope, DividedRope>;

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
  int32_t max_positions = 0;        // as config.json says: what is served unless asked otherwise
  int32_t stretched_positions = 0;  // what RoPE scaling allows at most, or max_positions
  float rms_epsilon = 1e-6F;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  std::vector<int32_t> windows;  // [layers] tokens that a layer attends to, 0: all; empty: all 0
  bool qk_norm = false;          // an RMS norm of each head of q and k before the rotation
  ElementType checkpoint_type = ElementType::kBF16;
  std::optional<QuantizationConfig> quantization;  // of a folder whose weights are quantised
  std::vector<TokenId> eos_token_ids;  // of config.json; generation_config.json may say more
  std::optional<TokenId> bos_token_id;
  std::vector<std::string> warnings;  // a line for each value that cannot be used and was left out

  [[nodiscard]] int32_t window_of(int32_t layer) const {
    return windows.empty() ? 0 : windows[static_cast<size_t>(layer)];
  }
};

// Parses the text of a config.json. Errors name the field, what it holds, and what would do.
Result<ModelConfig> parse_config(const std::string& json_text);
// The same fields, read from elsewhere.
Result<ModelConfig> parse_config(const JsonFields& fields);

// The names of the architectures and models that parse_config accepts, for errors and help.
std::string_view supported_architectures();

// inverse frequency of each rotated pair, RoPE scaling applied: [head_dim / 2]. Dynamic scaling
// depends on `served_positions`, the longest sequence that is served.
std::vector<double> rope_inverse_frequencies(const ModelConfig& config, int64_t served_positions);

// What RoPE scaling multiplies cos and sin by.
double rope_attention_factor(const ModelConfig& config);

// The scaling in words: "yarn scaling by 4 from 32768 positions"; empty without.
std::string rope_scaling_text(const ModelConfig& config);

int64_t parameter_count(const ModelConfig& config);

// Bytes of K and V of one token, all layers, as stored (head dim padded).
int64_t kv_bytes_per_token(const ModelConfig& config, ElementType kv_type);

}  // namespace tandem::model
