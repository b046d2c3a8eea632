#include "model/quantization_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/json_fields.h"

namespace tandem::model {
namespace {

constexpr size_t kShownBytes = 80;
constexpr int64_t kMaxGroupSize = int64_t{1} << 24;
constexpr size_t kMaxSchemes = 256;
constexpr std::string_view kCure =
    "use the original in float32, bfloat16 or float16, or a GGUF file";

std::string shown(const std::string& text) { return text.substr(0, kShownBytes); }

bool any_case_equal(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) {
    return (x >= 'A' && x <= 'Z' ? x + ('a' - 'A') : x) == y;
  });
}

// `key` must be one of `allowed` (in lower case) if it is there.
Status require_one_of(const JsonFields& fields, std::string_view key,
                      std::initializer_list<std::string_view> allowed, std::string_view names) {
  ASSIGN_OR_RETURN(const std::optional<std::string> text, fields.string(key));
  const bool known = !text || std::ranges::any_of(allowed, [&](std::string_view name) {
    return any_case_equal(*text, name);
  });
  return known ? Status{}
               : fields.unsupported(key, fmt::format("'{}' is not supported; supported is {}; {}",
                                                     shown(*text), names, kCure));
}

Status require_absent(const JsonFields& fields, std::string_view key) {
  if (!fields.has(key)) {
    return {};
  }
  const nlohmann::json& value = *fields.json().find(std::string(key));
  const bool nothing =
      (value.is_boolean() && !value.get<bool>()) || (value.is_structured() && value.empty());
  return nothing ? Status{}
                 : fields.unsupported(
                       key, fmt::format("is set, which is not supported with quantised weights; {}",
                                        kCure));
}

Result<int32_t> parse_bits(const JsonFields& fields, std::string_view key, bool four_only) {
  ASSIGN_OR_RETURN(const int64_t bits, fields.required_integer(key, {1, 64}));
  if (bits != 4 && (bits != 8 || four_only)) {
    return fields.unsupported(key, fmt::format("is {}; supported are {}; {}", bits,
                                               four_only ? "4 bits" : "4 and 8 bits", kCure));
  }
  return static_cast<int32_t>(bits);
}

Result<int64_t> parse_group_size(const JsonFields& fields, std::string_view key) {
  ASSIGN_OR_RETURN(const int64_t size, fields.required_integer(key, {-1, kMaxGroupSize}));
  if (size == 0 || size % 32 != 0) {
    if (size != -1) {
      return fields.unsupported(
          key, fmt::format("is {}; supported are multiples of 32, and -1 for whole rows; {}", size,
                           kCure));
    }
  }
  return size;
}

std::string_view present(const JsonFields& fields, std::string_view first,
                         std::string_view second) {
  return !fields.has(first) && fields.has(second) ? second : first;
}

// "-:NAME" leaves layers as they are; other rules give layers of their own numbers.
Status add_dynamic_schemes(const JsonFields& fields, const QuantizationScheme& usual,
                           std::vector<QuantizationScheme>& schemes) {
  ASSIGN_OR_RETURN(const std::optional<JsonFields> rules, fields.object("dynamic"));
  if (!rules) {
    return {};
  }
  if (rules->json().size() > kMaxSchemes) {
    return fields.error("dynamic", fmt::format("has {} rules, more than the {} allowed",
                                               rules->json().size(), kMaxSchemes));
  }
  for (const auto& item : rules->json().items()) {
    if (item.key().starts_with("-:")) {
      continue;
    }
    ASSIGN_OR_RETURN(const std::optional<JsonFields> rule, rules->object(item.key()));
    if (!rule) {
      continue;
    }
    QuantizationScheme scheme = usual;
    if (rule->has("bits")) {
      ASSIGN_OR_RETURN(scheme.bits, parse_bits(*rule, "bits", false));
    }
    if (rule->has("group_size")) {
      ASSIGN_OR_RETURN(scheme.group_size, parse_group_size(*rule, "group_size"));
    }
    ASSIGN_OR_RETURN(const std::optional<bool> symmetric, rule->boolean("sym"));
    scheme.symmetric = symmetric.value_or(usual.symmetric);
    schemes.push_back(scheme);
  }
  return {};
}

// desc_act is not looked at: where columns were reordered, g_idx says so, and it often changes
// nothing.
Result<QuantizationConfig> parse_gptq(const JsonFields& fields) {
  QuantizationConfig config{.method = QuantizationMethod::kGptq};
  QuantizationScheme scheme;
  ASSIGN_OR_RETURN(scheme.bits, parse_bits(fields, "bits", false));
  ASSIGN_OR_RETURN(scheme.group_size, parse_group_size(fields, "group_size"));
  ASSIGN_OR_RETURN(const std::optional<bool> symmetric, fields.boolean("sym"));
  scheme.symmetric = symmetric.value_or(true);
  for (const char* key : {"checkpoint_format", "format"}) {
    RETURN_IF_ERROR(require_one_of(fields, key, {"gptq", "gptq_v2"}, "gptq and gptq_v2"));
  }
  RETURN_IF_ERROR(require_one_of(fields, "pack_dtype", {"int32"}, "int32"));
  for (const char* key : {"is_marlin_format", "rotation", "adapter"}) {
    RETURN_IF_ERROR(require_absent(fields, key));
  }
  ASSIGN_OR_RETURN(const std::optional<std::string> format,
                   fields.string(present(fields, "checkpoint_format", "format")));
  config.zeros_minus_one = !format || any_case_equal(*format, "gptq");
  config.schemes.push_back(scheme);
  RETURN_IF_ERROR(add_dynamic_schemes(fields, scheme, config.schemes));
  return config;
}

Result<QuantizationConfig> parse_awq(const JsonFields& fields) {
  QuantizationConfig config{.method = QuantizationMethod::kAwq};
  QuantizationScheme scheme{.symmetric = false};
  ASSIGN_OR_RETURN(scheme.bits, parse_bits(fields, present(fields, "bits", "w_bit"), true));
  ASSIGN_OR_RETURN(scheme.group_size,
                   parse_group_size(fields, present(fields, "group_size", "q_group_size")));
  for (const char* key : {"version", "checkpoint_format", "format"}) {
    RETURN_IF_ERROR(require_one_of(fields, key, {"gemm"}, "gemm"));
  }
  RETURN_IF_ERROR(require_one_of(fields, "pack_dtype", {"int32"}, "int32"));
  ASSIGN_OR_RETURN(const std::optional<bool> zero_point, fields.boolean("zero_point"));
  if (!zero_point.value_or(true)) {
    return fields.unsupported("zero_point", fmt::format("is false; supported is true; {}", kCure));
  }
  config.schemes.push_back(scheme);
  return config;
}

Result<QuantizationScheme> parse_weights(const JsonFields& weights) {
  QuantizationScheme scheme;
  RETURN_IF_ERROR(require_one_of(weights, "type", {"int"}, "int"));
  ASSIGN_OR_RETURN(scheme.bits, parse_bits(weights, "num_bits", false));
  ASSIGN_OR_RETURN(const std::optional<bool> symmetric, weights.boolean("symmetric"));
  scheme.symmetric = symmetric.value_or(true);
  RETURN_IF_ERROR(require_one_of(weights, "strategy", {"group", "channel"}, "group and channel"));
  ASSIGN_OR_RETURN(const std::optional<std::string> strategy, weights.string("strategy"));
  const bool sized = weights.has("group_size");
  if (!strategy && !sized) {
    return weights.error("strategy", "is missing; it must be group or channel");
  }
  if (strategy ? any_case_equal(*strategy, "group") : sized) {
    ASSIGN_OR_RETURN(scheme.group_size, parse_group_size(weights, "group_size"));
  }
  return scheme;
}

void warn_of_ignored(const JsonFields& group, std::vector<std::string>& warnings) {
  for (const char* key : {"input_activations", "output_activations"}) {
    if (group.has(key)) {
      warnings.push_back(group
                             .error(key,
                                    "is not computed: activations stay bfloat16, which is "
                                    "closer to the original model, unless --activations int8 "
                                    "rounds them")
                             .message);
    }
  }
}

Status require_packed_format(const JsonFields& fields) {
  return require_one_of(fields, "format", {"pack-quantized", "int-quantized", "naive-quantized"},
                        "pack-quantized, int-quantized and naive-quantized with integers");
}

// An empty list of schemes: the weights are not compressed.
Result<QuantizationConfig> parse_compressed_tensors(const JsonFields& fields,
                                                    std::vector<std::string>& warnings) {
  QuantizationConfig config{.method = QuantizationMethod::kCompressedTensors};
  ASSIGN_OR_RETURN(const std::optional<std::string> format, fields.string("format"));
  if (format && any_case_equal(*format, "dense")) {
    return config;
  }
  if (!format || !any_case_equal(*format, "mixed-precision")) {  // whose groups have formats
    RETURN_IF_ERROR(require_packed_format(fields));
  }
  RETURN_IF_ERROR(require_absent(fields, "transform_config"));
  ASSIGN_OR_RETURN(const std::optional<JsonFields> sparsity, fields.object("sparsity_config"));
  if (sparsity) {
    RETURN_IF_ERROR(require_one_of(*sparsity, "format", {"dense"}, "dense"));
  }
  ASSIGN_OR_RETURN(const std::optional<JsonFields> groups, fields.object("config_groups"));
  if (!groups || groups->json().empty() || groups->json().size() > kMaxSchemes) {
    return fields.error("config_groups", fmt::format("must be an object of 1 to {} groups that say "
                                                     "how weights are quantised",
                                                     kMaxSchemes));
  }
  for (const auto& item : groups->json().items()) {
    ASSIGN_OR_RETURN(const std::optional<JsonFields> group, groups->object(item.key()));
    if (!group) {
      return groups->error(item.key(), "is null; it must say how weights are quantised");
    }
    RETURN_IF_ERROR(require_packed_format(*group));
    warn_of_ignored(*group, warnings);
    ASSIGN_OR_RETURN(const std::optional<JsonFields> weights, group->object("weights"));
    if (weights) {
      ASSIGN_OR_RETURN(const QuantizationScheme scheme, parse_weights(*weights));
      config.schemes.push_back(scheme);
    }
  }
  if (config.schemes.empty()) {
    return fields.error("config_groups", "names no weights that are quantised");
  }
  if (fields.has("kv_cache_scheme")) {
    warnings.push_back(
        fields.error("kv_cache_scheme", "is not computed: KV stays in --kv-cache-dtype").message);
  }
  return config;
}

}  // namespace

std::string_view method_name(QuantizationMethod method) {
  return method == QuantizationMethod::kGptq  ? "gptq"
         : method == QuantizationMethod::kAwq ? "awq"
                                              : "compressed-tensors";
}

std::string quantization_text(const QuantizationConfig& config) {
  std::vector<std::string> texts;
  for (const QuantizationScheme& scheme : config.schemes) {
    const std::string groups = scheme.group_size < 0
                                   ? "with a scale for each row"
                                   : fmt::format("in groups of {}", scheme.group_size);
    texts.push_back(fmt::format("{} bits {}, {}", scheme.bits, groups,
                                scheme.symmetric ? "symmetric" : "with zero points"));
  }
  return fmt::format("{}, {}", method_name(config.method), fmt::join(texts, " or "));
}

Result<std::optional<QuantizationConfig>> parse_quantization_config(
    const JsonFields& fields, std::vector<std::string>& warnings) {
  const bool twice = fields.has("quantization_config") && fields.has("compression_config");
  if (twice) {
    return fields.error("compression_config",
                        "is given as well as quantization_config; leave one of them out");
  }
  const std::string_view key = present(fields, "quantization_config", "compression_config");
  ASSIGN_OR_RETURN(const std::optional<JsonFields> own, fields.object(key));
  if (!own) {
    return std::optional<QuantizationConfig>();
  }
  const std::string_view method_key = present(*own, "quant_method", "method");
  ASSIGN_OR_RETURN(const std::optional<std::string> method, own->string(method_key));
  if (!method) {
    return own->error(method_key, "is missing; supported are gptq, awq and compressed-tensors");
  }
  std::optional<QuantizationConfig> parsed;
  if (any_case_equal(*method, "gptq")) {
    ASSIGN_OR_RETURN(parsed, parse_gptq(*own));
  } else if (any_case_equal(*method, "awq")) {
    ASSIGN_OR_RETURN(parsed, parse_awq(*own));
  } else if (any_case_equal(*method, "compressed-tensors")) {
    ASSIGN_OR_RETURN(parsed, parse_compressed_tensors(*own, warnings));
  } else {
    return own->unsupported(
        method_key,
        fmt::format("'{}' is not supported; supported are gptq, awq and compressed-tensors; {}",
                    shown(*method), kCure));
  }
  return parsed->schemes.empty() ? std::nullopt : std::move(parsed);
}

}  // namespace tandem::model
