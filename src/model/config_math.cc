// What follows from a model's shape: rotary frequencies, parameters, bytes of KV.
#include <cmath>
#include <numbers>

#include "kernels/gemm.h"
#include "kernels/kv_layout.h"
#include "model/config.h"

namespace tandem::model {

std::vector<double> rope_inverse_frequencies(const ModelConfig& config) {
  std::vector<double> frequencies(static_cast<size_t>(config.head_dim / 2));
  for (size_t pair = 0; pair < frequencies.size(); ++pair) {
    const double exponent = 2.0 * static_cast<double>(pair) / config.head_dim;
    double frequency = std::pow(config.rope_theta, -exponent);
    if (config.llama3_rope) {
      const Llama3Rope& rope = *config.llama3_rope;
      // How often the pair turns within the context that the model was first trained with.
      const double turns = rope.original_max_positions * frequency / (2.0 * std::numbers::pi);
      if (turns < rope.low_frequency_factor) {
        frequency /= rope.factor;
      } else if (turns <= rope.high_frequency_factor) {
        const double kept = (turns - rope.low_frequency_factor) /
                            (rope.high_frequency_factor - rope.low_frequency_factor);
        frequency = (1.0 - kept) * frequency / rope.factor + kept * frequency;
      }
    }
    frequencies[pair] = frequency;
  }
  return frequencies;
}

int64_t parameter_count(const ModelConfig& config) {
  const int64_t hidden = config.hidden;
  const int64_t query = int64_t{config.heads} * config.head_dim;
  const int64_t key_value = int64_t{config.kv_heads} * config.head_dim;
  const int64_t attention = 2 * hidden * query + 2 * hidden * key_value;
  const int64_t bias = config.qkv_bias ? query + 2 * key_value : 0;
  const int64_t mlp = 3 * hidden * config.intermediate;
  const int64_t embedding = hidden * config.vocabulary;
  return config.layers * (attention + bias + mlp + 2 * hidden) + hidden +
         embedding * (config.tied_embeddings ? 1 : 2);
}

int64_t kv_bytes_per_token(const ModelConfig& config, ElementType kv_type) {
  const int64_t padded = kernels::round_up(config.head_dim, kernels::kHeadDimMultiple);
  return int64_t{config.layers} * 2 * config.kv_heads * padded * element_bytes(kv_type);
}

}  // namespace tandem::model
