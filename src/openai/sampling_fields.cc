#include "openai/sampling_fields.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace tandem::openai {

namespace {

Result<int32_t> parse_top_k(const FieldReader& fields, int32_t if_absent) {
  ASSIGN_OR_RETURN(const auto top_k,
                   fields.integer("top_k", -1, std::numeric_limits<int32_t>::max()));
  return static_cast<int32_t>(std::max<int64_t>(0, top_k.value_or(if_absent)));
}

Result<std::vector<LogitBias>> parse_logit_bias(const FieldReader& fields,
                                                const SamplingLimits& limits, int32_t vocabulary) {
  std::vector<LogitBias> biases;
  ASSIGN_OR_RETURN(const Json* map, fields.object("logit_bias"));
  if (map == nullptr) {
    return biases;
  }
  if (std::ssize(*map) > limits.max_logit_biases) {
    return invalid_argument(fmt::format("'logit_bias' has {} entries, at most {} are allowed",
                                        map->size(), limits.max_logit_biases),
                            "logit_bias");
  }
  for (const auto& [key, value] : map->items()) {
    TokenId token = 0;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), token);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || token < 0 ||
        token >= vocabulary) {
      return invalid_argument(
          fmt::format("the keys of 'logit_bias' must be token ids from 0 to {} as strings, not {}",
                      vocabulary - 1, describe(Json(key))),
          "logit_bias");
    }
    constexpr double kLargest = 100.0;
    const double bias = value.is_number() ? value.get<double>() : 2 * kLargest;
    if (!(bias >= -kLargest && bias <= kLargest)) {
      return invalid_argument(
          fmt::format("the bias of token {} in 'logit_bias' must be a number from -100 to 100, "
                      "not {}",
                      token, describe(value)),
          "logit_bias");
    }
    biases.push_back({token, static_cast<float>(bias)});
  }
  return biases;
}

Result<std::vector<TokenId>> parse_stop_token_ids(const FieldReader& fields,
                                                  const SamplingLimits& limits,
                                                  int32_t vocabulary) {
  std::vector<TokenId> ids;
  ASSIGN_OR_RETURN(const Json* list, fields.array("stop_token_ids"));
  if (list == nullptr) {
    return ids;
  }
  if (std::ssize(*list) > limits.max_stop_token_ids) {
    return invalid_argument(fmt::format("'stop_token_ids' has {} ids, at most {} are allowed",
                                        list->size(), limits.max_stop_token_ids),
                            "stop_token_ids");
  }
  for (const Json& value : *list) {
    const std::optional<int64_t> id = as_integer(value, 0, vocabulary - 1);
    if (!id) {
      return fields.wrong("stop_token_ids",
                          fmt::format("a list of token ids from 0 to {}", vocabulary - 1), value);
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

// Absent, null, false, 0, "", [] and {} ask for nothing.
bool asks_for_nothing(const Json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         (value.is_number() && value.get<double>() == 0.0) ||
         (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         (value.is_structured() && value.empty());
}

Error unsupported_value(std::string_view name, std::string_view allowed) {
  return {ErrorCode::kUnsupported,
          fmt::format("'{}' other than {} is not supported; leave the field out", name, allowed),
          std::string(name)};
}

// Fields of which this server supports one value, or two.
Status refuse_unsupported_values(const FieldReader& fields) {
  const Json* modalities = fields.find("modalities");
  if (modalities != nullptr && !asks_for_nothing(*modalities) &&
      *modalities != Json::array({"text"})) {
    return unsupported_value("modalities", R"(["text"])");
  }
  const Json* call = fields.find("function_call");
  if (call != nullptr && !asks_for_nothing(*call) && *call != "auto" && *call != "none") {
    return unsupported_value("function_call", R"("auto" and "none")");
  }
  return {};
}

}  // namespace

Result<SamplingParams> parse_sampling(const FieldReader& fields, const GenerationDefaults& defaults,
                                      const SamplingLimits& limits, int32_t vocabulary) {
  SamplingParams params;
  ASSIGN_OR_RETURN(const auto temperature, fields.number("temperature", {.low = 0.0}));
  params.temperature = temperature.value_or(defaults.temperature);
  ASSIGN_OR_RETURN(const auto top_p, fields.number("top_p", {.low = 0.0, .high = 1.0}));
  params.top_p = top_p.value_or(defaults.top_p);
  ASSIGN_OR_RETURN(params.top_k, parse_top_k(fields, defaults.top_k));
  if (params.top_p == 0.0F) {  // the most likely token alone; samplers need a top_p above 0
    params.top_p = 1.0F;
    params.top_k = 1;
  }
  ASSIGN_OR_RETURN(const auto min_p, fields.number("min_p", {.low = 0.0, .high = 1.0}));
  params.min_p = min_p.value_or(defaults.min_p);
  ASSIGN_OR_RETURN(const auto repetition,
                   fields.number("repetition_penalty",
                                 {.low = kMinRepetitionPenalty, .high = kMaxRepetitionPenalty}));
  params.repetition_penalty = repetition.value_or(defaults.repetition_penalty);
  ASSIGN_OR_RETURN(const auto presence,
                   fields.number("presence_penalty", {.low = -2.0, .high = 2.0}));
  params.presence_penalty = presence.value_or(0.0F);
  ASSIGN_OR_RETURN(const auto frequency,
                   fields.number("frequency_penalty", {.low = -2.0, .high = 2.0}));
  params.frequency_penalty = frequency.value_or(0.0F);
  ASSIGN_OR_RETURN(const auto seed, fields.integer("seed", std::numeric_limits<int64_t>::min(),
                                                   std::numeric_limits<int64_t>::max()));
  if (seed) {
    params.seed = static_cast<uint64_t>(*seed);
  }
  ASSIGN_OR_RETURN(params.logit_bias, parse_logit_bias(fields, limits, vocabulary));
  ASSIGN_OR_RETURN(params.stop_token_ids, parse_stop_token_ids(fields, limits, vocabulary));
  ASSIGN_OR_RETURN(const auto ignore_eos, fields.boolean("ignore_eos"));
  params.ignore_eos = ignore_eos.value_or(false);
  ASSIGN_OR_RETURN(const auto include_stop, fields.boolean("include_stop_str_in_output"));
  params.include_stop_string = include_stop.value_or(false);
  return params;
}

Result<std::shared_ptr<const text::StopStrings>> parse_stop_strings(const FieldReader& fields,
                                                                    const SamplingLimits& limits) {
  const Json* stop = fields.find("stop");
  if (stop == nullptr || (stop->is_array() && stop->empty())) {
    return std::shared_ptr<const text::StopStrings>();
  }
  const auto not_a_string = [&](const Json& value) {
    return fields.wrong("stop",
                        fmt::format("a string or a list of at most {} strings, each of 1 to {} "
                                    "bytes",
                                    limits.max_stop_strings, limits.max_stop_string_bytes),
                        value);
  };
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  if (std::ssize(list) > limits.max_stop_strings) {
    return invalid_argument(fmt::format("'stop' has {} strings, at most {} are allowed",
                                        list.size(), limits.max_stop_strings),
                            "stop");
  }
  std::vector<std::string> strings;
  for (const Json& value : list) {
    if (!value.is_string()) {
      return not_a_string(value);
    }
    auto string = value.get<std::string>();
    if (string.empty() || std::ssize(string) > limits.max_stop_string_bytes) {
      return not_a_string(value);
    }
    strings.push_back(std::move(string));
  }
  return text::StopStrings::compile(std::move(strings));
}

Status refuse_unsupported(const FieldReader& fields) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 18> kFields = {{
      {"use_beam_search", "beam search"},
      {"prompt_embeds", "embeddings as a prompt"},
      {"allowed_token_ids", "a list of allowed tokens"},
      {"bad_words", "forbidden words"},
      {"truncate_prompt_tokens", "cutting the prompt"},
      {"structured_outputs", "structured output"},
      {"guided_json", "structured output"},
      {"guided_regex", "structured output"},
      {"guided_choice", "structured output"},
      {"guided_grammar", "structured output"},
      {"structural_tag", "structured output"},
      {"logits_processors", "logits processors"},
      {"suffix", "text after the completion"},
      {"audio", "audio"},
      {"prediction", "predicted output"},
      {"web_search_options", "web search"},
      {"functions", "the old 'functions' (use 'tools')"},
      {"continue_final_message", "continuing the last message"},
  }};
  for (const auto& [name, what] : kFields) {
    const Json* value = fields.find(name);
    if (value != nullptr && !asks_for_nothing(*value)) {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("'{}': this server does not support {}; leave the field out",
                               fields.full_name(name), what),
                   fields.full_name(name)};
    }
  }
  RETURN_IF_ERROR(refuse_unsupported_values(fields));
  const Json* format = fields.find("response_format");
  if (format != nullptr) {
    const auto type = format->is_object() ? format->find("type") : format->end();
    if (!format->is_object() || type == format->end() || !type->is_string()) {
      return fields.wrong("response_format", "an object with a 'type'", *format);
    }
    if (*type != "text") {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("'response_format' of type {} is not supported, only \"text\" is; "
                               "leave the field out",
                               quoted(*type)),
                   "response_format"};
    }
  }
  return {};
}

}  // namespace tandem::openai
