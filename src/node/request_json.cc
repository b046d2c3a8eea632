#include "node/request_json.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/json_values.h"

namespace tandem {

using nlohmann::json;

json request_to_json(const Request& request) {
  const SamplingParams& sampling = request.sampling;
  json out;
  out["prompt"] = request.prompt;
  out["n"] = request.n;
  out["best_effort"] = request.service_class == ServiceClass::kBestEffort;
  out["level"] = request.level;
  if (request.slo.ttft) {
    out["ttft_ns"] = {request.slo.ttft->base.count(), request.slo.ttft->per_token.count(),
                      request.slo.ttft->cap.count()};
  }
  if (request.slo.tpot) {
    out["tpot_ns"] = request.slo.tpot->count();
  }
  out["tenant"] = request.tenant;
  // Floats as doubles: exact both ways.
  out["temperature"] = sampling.temperature;
  out["top_p"] = sampling.top_p;
  out["top_k"] = sampling.top_k;
  out["min_p"] = sampling.min_p;
  out["repetition_penalty"] = sampling.repetition_penalty;
  out["presence_penalty"] = sampling.presence_penalty;
  out["frequency_penalty"] = sampling.frequency_penalty;
  out["logprobs"] = sampling.logprobs;
  out["prompt_logprobs"] = sampling.prompt_logprobs;
  out["max_tokens"] = sampling.max_tokens;
  out["min_tokens"] = sampling.min_tokens;
  out["ignore_eos"] = sampling.ignore_eos;
  out["stop_token_ids"] = sampling.stop_token_ids;
  json biases = json::array();
  for (const LogitBias& bias : sampling.logit_bias) {
    biases.push_back({bias.token, bias.bias});
  }
  out["logit_bias"] = std::move(biases);
  return out;
}

namespace {

constexpr int64_t kMostTokens = int64_t{1} << 24;   // of a vocabulary
constexpr int64_t kMostContext = int64_t{1} << 30;  // what --max-model-len may ask for

Result<int32_t> whole(const json& in, const char* key, int64_t low, int64_t high) {
  ASSIGN_OR_RETURN(const int64_t value, record_integer(in, key, low, high));
  return static_cast<int32_t>(value);
}

// Any float but infinities and NaN: requests are not held to ranges twice.
Result<float> real(const json& value, const char* key) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  const std::optional<double> number = json_number(value);
  if (!number || !(std::abs(*number) <= kLargest)) {
    return invalid_argument(
        fmt::format("an arrival of the record is broken: {} must be a number", key));
  }
  return static_cast<float>(*number);
}

Result<std::vector<TokenId>> tokens(const json& list, const char* key) {
  std::vector<TokenId> ids;
  for (const json& value : list) {
    const int64_t id = json_integer(value).value_or(-1);
    if (id < 0 || id > kMostTokens) {
      return invalid_argument(
          fmt::format("an arrival of the record is broken: {} must list token ids", key));
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

// Records of earlier builds have no targets.
Status read_slo(const json& in, Slo& slo) {
  if (in.contains("ttft_ns")) {
    const json& rule = in["ttft_ns"];
    if (!rule.is_array() || rule.size() != 3) {
      return invalid_argument(
          "an arrival of the record is broken: ttft_ns must be base, slope and cap");
    }
    const json parts{{"base", rule[0]}, {"per_token", rule[1]}, {"cap", rule[2]}};
    const int64_t most = kLongestTarget.count();
    ASSIGN_OR_RETURN(const int64_t base, record_integer(parts, "base", 0, most));
    ASSIGN_OR_RETURN(const int64_t per_token, record_integer(parts, "per_token", 0, most));
    ASSIGN_OR_RETURN(const int64_t cap, record_integer(parts, "cap", 1, INT64_MAX));
    slo.ttft = TtftRule{Nanos(base), Nanos(per_token), Nanos(cap)};
  }
  if (in.contains("tpot_ns")) {
    ASSIGN_OR_RETURN(const int64_t tpot, record_integer(in, "tpot_ns", 1, kLongestTarget.count()));
    slo.tpot = Nanos(tpot);
  }
  return {};
}

Status read_sampling(const json& in, SamplingParams& sampling) {
  for (const auto& [key, target] :
       {std::pair("temperature", &sampling.temperature), std::pair("top_p", &sampling.top_p),
        std::pair("min_p", &sampling.min_p),
        std::pair("repetition_penalty", &sampling.repetition_penalty),
        std::pair("presence_penalty", &sampling.presence_penalty),
        std::pair("frequency_penalty", &sampling.frequency_penalty)}) {
    ASSIGN_OR_RETURN(*target, real(in.at(key), key));
  }
  ASSIGN_OR_RETURN(sampling.top_k, whole(in, "top_k", -1, INT32_MAX));
  ASSIGN_OR_RETURN(sampling.logprobs, whole(in, "logprobs", -1, 1000));
  if (in.contains("prompt_logprobs")) {  // older records have none
    ASSIGN_OR_RETURN(sampling.prompt_logprobs, whole(in, "prompt_logprobs", -1, 1000));
  }
  ASSIGN_OR_RETURN(sampling.max_tokens, whole(in, "max_tokens", 1, kMostContext));
  ASSIGN_OR_RETURN(sampling.min_tokens, whole(in, "min_tokens", 0, kMostContext));
  sampling.ignore_eos = in.at("ignore_eos").get<bool>();
  ASSIGN_OR_RETURN(sampling.stop_token_ids, tokens(in.at("stop_token_ids"), "stop_token_ids"));
  for (const json& bias : in.at("logit_bias")) {
    ASSIGN_OR_RETURN(const std::vector<TokenId> token,
                     tokens(json::array({bias.at(0)}), "logit_bias"));
    ASSIGN_OR_RETURN(const float value, real(bias.at(1), "logit_bias"));
    sampling.logit_bias.push_back({token.front(), value});
  }
  ASSIGN_OR_RETURN(sampling.seed, record_seed(in));
  return {};
}

}  // namespace

Result<int64_t> record_integer(const json& in, const char* key, int64_t low, int64_t high) {
  const std::optional<int64_t> value = json_integer(in.at(key));
  if (!value || *value < low || *value > high) {
    return invalid_argument(
        fmt::format("the record is broken: {} must be a whole number of {} to {}", key, low, high));
  }
  return *value;
}

Result<uint64_t> record_seed(const json& in) {
  const json& value = in.at("seed");
  if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<int64_t>() < 0)) {
    return invalid_argument(
        fmt::format("the record is broken: seed must be a whole number of 0 to {}", UINT64_MAX));
  }
  return value.get<uint64_t>();
}

Result<Request> request_from_json(const json& in) {
  Request request;
  try {
    ASSIGN_OR_RETURN(request.prompt, tokens(in.at("prompt"), "prompt"));
    ASSIGN_OR_RETURN(request.n, whole(in, "n", 1, 1 << 16));
    request.service_class = in.at("best_effort").get<bool>() ? ServiceClass::kBestEffort
                                                             : ServiceClass::kLatencySensitive;
    ASSIGN_OR_RETURN(request.level, whole(in, "level", INT32_MIN, INT32_MAX));
    RETURN_IF_ERROR(read_slo(in, request.slo));
    in.at("tenant").get_to(request.tenant);
    RETURN_IF_ERROR(read_sampling(in, request.sampling));
  } catch (const json::exception& error) {
    return invalid_argument(fmt::format("an arrival of the record is broken: {}", error.what()));
  }
  if (request.prompt.empty()) {
    return invalid_argument("an arrival of the record has no prompt");
  }
  return request;
}

}  // namespace tandem
