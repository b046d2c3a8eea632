// What follows from a model's shape: rotary frequencies, parameters, bytes of KV.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/gemm.h"
#include "kernels/kv_layout.h"
#include "model/config.h"

namespace tandem::model {

namespace {

double plain_frequency(double theta, int64_t pair, int32_t head_dim) {
  return std::pow(theta, -2.0 * static_cast<double>(pair) / head_dim);
}

double llama3_frequency(const Llama3Rope& rope, double frequency) {
  // How often the pair turns within the context that the model was first trained with.
  const double turns = rope.original_max_positions * frequency / (2.0 * std::numbers::pi);
  if (turns < rope.low_frequency_factor) {
    return frequency / rope.factor;
  }
  if (turns > rope.high_frequency_factor) {
    return frequency;
  }
  const double kept = (turns - rope.low_frequency_factor) /
                      (rope.high_frequency_factor - rope.low_frequency_factor);
  return (1.0 - kept) * frequency / rope.factor + kept * frequency;
}

// The pairs between which YaRN goes from kept to divided frequencies.
struct Ramp {
  double first = 0.0;
  double last = 0.0;
  [[nodiscard]] double at(double pair) const {
    constexpr double kLeastWidth = 0.001;
    const double width = last == first ? kLeastWidth : last - first;
    return std::clamp((pair - first) / width, 0.0, 1.0);
  }
};

Ramp yarn_ramp(const YarnRope& yarn, const ModelConfig& config) {
  // The (fractional) dimension whose pair turns this often within the original context.
  const auto dimension_of = [&](double turns) {
    return config.head_dim *
           std::log(yarn.original_max_positions / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(config.rope_theta));
  };
  Ramp ramp{dimension_of(yarn.beta_fast), dimension_of(yarn.beta_slow)};
  if (yarn.truncate) {
    ramp = {std::floor(ramp.first), std::ceil(ramp.last)};
  }
  return {std::max(ramp.first, 0.0), std::min(ramp.last, config.head_dim - 1.0)};
}

// The base for `served_positions`: transformers' for a sequence of just that length.
double dynamic_theta(const DynamicRope& rope, const ModelConfig& config, int64_t served_positions) {
  const auto known = static_cast<double>(config.max_positions);
  const double served = std::max(known, static_cast<double>(served_positions));
  const double stretch = rope.factor * served / known - (rope.factor - 1.0);
  return config.rope_theta * std::pow(stretch, config.head_dim / (config.head_dim - 2.0));
}

}  // namespace

std::vector<double> rope_inverse_frequencies(const ModelConfig& config, int64_t served_positions) {
  const auto* dynamic = std::get_if<DynamicRope>(&config.rope_scaling);
  const double theta =
      dynamic != nullptr ? dynamic_theta(*dynamic, config, served_positions) : config.rope_theta;
  const auto* yarn = std::get_if<YarnRope>(&config.rope_scaling);
  const Ramp ramp = yarn != nullptr ? yarn_ramp(*yarn, config) : Ramp{};
  std::vector<double> frequencies;
  for (int32_t pair = 0; pair < config.head_dim / 2; ++pair) {
    double frequency = plain_frequency(theta, pair, config.head_dim);
    if (const auto* llama3 = std::get_if<Llama3Rope>(&config.rope_scaling)) {
      frequency = llama3_frequency(*llama3, frequency);
    } else if (const auto* linear = std::get_if<LinearRope>(&config.rope_scaling)) {
      frequency /= linear->factor;
    } else if (const auto* by_pair = std::get_if<DividedRope>(&config.rope_scaling)) {
      frequency /= by_pair->divisors[static_cast<size_t>(pair)];
    } else if (yarn != nullptr) {
      const double divided = ramp.at(pair);
      frequency = divided * frequency / yarn->factor + (1.0 - divided) * frequency;
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

double rope_attention_factor(const ModelConfig& config) {
  const auto* yarn = std::get_if<YarnRope>(&config.rope_scaling);
  return yarn != nullptr ? yarn->attention_factor : 1.0;
}

std::string rope_scaling_text(const ModelConfig& config) {
  if (const auto* llama3 = std::get_if<Llama3Rope>(&config.rope_scaling)) {
    return fmt::format("llama3 scaling by {:g} from {} positions", llama3->factor,
                       llama3->original_max_positions);
  }
  if (const auto* yarn = std::get_if<YarnRope>(&config.rope_scaling)) {
    return fmt::format("yarn scaling by {:g} from {} positions", yarn->factor,
                       yarn->original_max_positions);
  }
  if (const auto* linear = std::get_if<LinearRope>(&config.rope_scaling)) {
    return fmt::format("linear scaling by {:g}", linear->factor);
  }
  if (const auto* dynamic = std::get_if<DynamicRope>(&config.rope_scaling)) {
    return fmt::format("dynamic scaling by {:g} beyond {} positions", dynamic->factor,
                       config.max_positions);
  }
  if (std::holds_alternative<DividedRope>(config.rope_scaling)) {
    return "a divisor for each frequency (rope_freqs.weight)";
  }
  return {};
}

int64_t parameter_count(const ModelConfig& config) {
  const int64_t hidden = config.hidden;
  const int64_t query = int64_t{config.heads} * config.head_dim;
  const int64_t key_value = int64_t{config.kv_heads} * config.head_dim;
  const int64_t attention = 2 * hidden * query + 2 * hidden * key_value;
  const int64_t bias = config.qkv_bias ? query + 2 * key_value : 0;
  const int64_t qk_norm = config.qk_norm ? 2 * int64_t{config.head_dim} : 0;
  const int64_t mlp = 3 * hidden * config.intermediate;
  const int64_t embedding = hidden * config.vocabulary;
  return config.layers * (attention + bias + qk_norm + mlp + 2 * hidden) + hidden +
         embedding * (config.tied_embeddings ? 1 : 2);
}

int64_t kv_bytes_per_token(const ModelConfig& config, ElementType kv_type) {
  const int64_t padded = kernels::round_up(config.head_dim, kernels::kHeadDimMultiple);
  return int64_t{config.layers} * 2 * config.kv_heads * padded * element_bytes(kv_type);
}

}  // namespace tandem::model
