#include "model/config_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tandem::model {
namespace {

constexpr NumberRange kThetaRange{1.0, 1e12};
constexpr NumberRange kFactorRange{1.0, 1e6};
constexpr std::string_view kSupportedTypes = "default, linear, dynamic, yarn and llama3";

int32_t times(int32_t positions, double factor) {
  const double product = std::floor(static_cast<double>(positions) * factor);
  return static_cast<int32_t>(std::min(product, static_cast<double>(kMaxPositions)));
}

Result<double> required_factor(const JsonFields& rope, std::string_view type) {
  ASSIGN_OR_RETURN(const std::optional<double> factor, rope.number("factor", kFactorRange));
  if (!factor) {
    return rope.error("factor", fmt::format("is missing, but rope type {} needs it", type));
  }
  return *factor;
}

Result<RopeScaling> parse_llama3(const JsonFields& rope) {
  ASSIGN_OR_RETURN(const std::optional<double> factor, rope.number("factor", kFactorRange));
  ASSIGN_OR_RETURN(const std::optional<double> low, rope.number("low_freq_factor", {1e-3, 1e6}));
  ASSIGN_OR_RETURN(const std::optional<double> high, rope.number("high_freq_factor", {1e-3, 1e6}));
  ASSIGN_OR_RETURN(const std::optional<int64_t> original,
                   rope.integer("original_max_position_embeddings", {1, kMaxPositions}));
  for (const auto& [present, key] :
       {std::pair(factor.has_value(), "factor"), std::pair(low.has_value(), "low_freq_factor"),
        std::pair(high.has_value(), "high_freq_factor"),
        std::pair(original.has_value(), "original_max_position_embeddings")}) {
    if (!present) {
      return rope.error(key, "is missing, but rope type llama3 needs it");
    }
  }
  if (*high <= *low) {
    return rope.error("high_freq_factor",
                      fmt::format("is {}, but must be above low_freq_factor ({})", *high, *low));
  }
  return RopeScaling(Llama3Rope{.factor = *factor,
                                .low_frequency_factor = *low,
                                .high_frequency_factor = *high,
                                .original_max_positions = static_cast<int32_t>(*original)});
}

// What multiplies cos and sin where the config does not say: 0.1 ln(factor) + 1, or the quotient of
// two such when both mscales are given.
double yarn_attention_factor(double factor, double mscale, double mscale_all_dim) {
  const auto scale = [factor](double weight) {
    return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
  };
  return mscale != 0.0 && mscale_all_dim != 0.0 ? scale(mscale) / scale(mscale_all_dim)
                                                : scale(1.0);
}

Result<RopeScaling> parse_yarn(const JsonFields& fields, const JsonFields& rope,
                               const ModelConfig& config) {
  const char* original_key = "original_max_position_embeddings";
  ASSIGN_OR_RETURN(std::optional<int64_t> original,
                   fields.integer(original_key, {1, kMaxPositions}));
  if (!original) {
    ASSIGN_OR_RETURN(original, rope.integer(original_key, {1, kMaxPositions}));
  }
  YarnRope yarn;
  yarn.original_max_positions =
      static_cast<int32_t>(original.value_or(int64_t{config.max_positions}));
  ASSIGN_OR_RETURN(const std::optional<double> factor, rope.number("factor", kFactorRange));
  yarn.factor = factor.value_or(
      std::max(1.0, static_cast<double>(config.max_positions) / yarn.original_max_positions));
  constexpr NumberRange kBetaRange{0.0, 1e6};
  ASSIGN_OR_RETURN(const std::optional<double> fast, rope.number("beta_fast", kBetaRange));
  ASSIGN_OR_RETURN(const std::optional<double> slow, rope.number("beta_slow", kBetaRange));
  // Zero means the default, as transformers reads it.
  yarn.beta_fast = fast.value_or(0.0) == 0.0 ? yarn.beta_fast : *fast;
  yarn.beta_slow = slow.value_or(0.0) == 0.0 ? yarn.beta_slow : *slow;
  if (yarn.beta_fast < yarn.beta_slow) {
    return rope.error("beta_fast", fmt::format("is {}, but must not be under beta_slow ({})",
                                               yarn.beta_fast, yarn.beta_slow));
  }
  ASSIGN_OR_RETURN(const std::optional<bool> truncate, rope.boolean("truncate"));
  yarn.truncate = truncate.value_or(true);
  ASSIGN_OR_RETURN(const std::optional<double> given, rope.number("attention_factor", {0.0, 1e3}));
  ASSIGN_OR_RETURN(const std::optional<double> mscale, rope.number("mscale", {0.0, 1e3}));
  ASSIGN_OR_RETURN(const std::optional<double> mscale_all,
                   rope.number("mscale_all_dim", {0.0, 1e3}));
  yarn.attention_factor = given.value_or(
      yarn_attention_factor(yarn.factor, mscale.value_or(0.0), mscale_all.value_or(0.0)));
  return RopeScaling(yarn);
}

// Sets what the object at rope_scaling or rope_parameters says beside rope_theta.
Status parse_scaling(const JsonFields& fields, const JsonFields& rope, ModelConfig& config) {
  ASSIGN_OR_RETURN(const std::optional<std::string> new_name, rope.string("rope_type"));
  ASSIGN_OR_RETURN(const std::optional<std::string> old_name, rope.string("type"));
  const std::string type = new_name ? *new_name : old_name.value_or("default");
  for (const char* kind : {"full_attention", "sliding_attention"}) {
    if (rope.has(kind)) {
      return rope.unsupported(kind,
                              "gives layers of one kind a rotation of their own, which "
                              "is not supported");
    }
  }
  if (type == "default") {
    return {};
  }
  if (type == "llama3") {
    ASSIGN_OR_RETURN(config.rope_scaling, parse_llama3(rope));
  } else if (type == "linear") {
    ASSIGN_OR_RETURN(const double factor, required_factor(rope, type));
    config.rope_scaling = LinearRope{.factor = factor};
    config.stretched_positions = times(config.max_positions, factor);
  } else if (type == "dynamic") {
    ASSIGN_OR_RETURN(const double factor, required_factor(rope, type));
    if (config.head_dim <= 2) {
      return rope.error("rope_type", "'dynamic' needs heads of more than 2 dimensions");
    }
    config.rope_scaling = DynamicRope{.factor = factor};
    config.stretched_positions = times(config.max_positions, factor);
  } else if (type == "yarn") {
    ASSIGN_OR_RETURN(config.rope_scaling, parse_yarn(fields, rope, config));
    const auto& yarn = std::get<YarnRope>(config.rope_scaling);
    config.stretched_positions =
        std::max(config.max_positions, times(yarn.original_max_positions, yarn.factor));
  } else {
    return rope.unsupported(rope.has("rope_type") ? "rope_type" : "type",
                            fmt::format("'{}' is not supported; supported are {}",
                                        type.substr(0, 80), kSupportedTypes));
  }
  return {};
}

Status refuse_partial(const JsonFields& fields) {
  ASSIGN_OR_RETURN(const std::optional<double> partial,
                   fields.number("partial_rotary_factor", {0.0, 1.0}));
  if (partial.value_or(1.0) != 1.0) {
    return fields.unsupported("partial_rotary_factor",
                              "is not 1; models that rotate a part of each head are not "
                              "supported");
  }
  return {};
}

}  // namespace

Status parse_rope(const JsonFields& fields, ModelConfig& config) {
  config.stretched_positions = config.max_positions;
  RETURN_IF_ERROR(refuse_partial(fields));
  ASSIGN_OR_RETURN(std::optional<double> theta, fields.number("rope_theta", kThetaRange));
  // Where both are there, transformers reads the old one unless it is empty, and a theta inside
  // before the one outside.
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    ASSIGN_OR_RETURN(const std::optional<JsonFields> rope, fields.object(key));
    if (!rope || rope->json().empty()) {
      continue;
    }
    RETURN_IF_ERROR(refuse_partial(*rope));
    ASSIGN_OR_RETURN(const std::optional<double> inner, rope->number("rope_theta", kThetaRange));
    theta = inner ? inner : theta;
    RETURN_IF_ERROR(parse_scaling(fields, *rope, config));
    break;
  }
  config.rope_theta = theta.value_or(10000.0);
  if (std::holds_alternative<YarnRope>(config.rope_scaling) && config.rope_theta <= 1.0) {
    return fields.error("rope_theta", "is 1, but rope type yarn needs more");
  }
  return {};
}

}  // namespace tandem::model
