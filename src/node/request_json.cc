#include "node/request_json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace tandem {

using nlohmann::json;

json request_to_json(const Request& request) {
  const SamplingParams& sampling = request.sampling;
  json out;
  out["prompt"] = request.prompt;
  out["n"] = request.n;
  out["best_effort"] = request.service_class == ServiceClass::kBestEffort;
  out["level"] = request.level;
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

Result<Request> request_from_json(const json& in) {
  Request request;
  try {
    SamplingParams& sampling = request.sampling;
    in.at("prompt").get_to(request.prompt);
    in.at("n").get_to(request.n);
    request.service_class = in.at("best_effort").get<bool>() ? ServiceClass::kBestEffort
                                                             : ServiceClass::kLatencySensitive;
    in.at("level").get_to(request.level);
    in.at("tenant").get_to(request.tenant);
    in.at("temperature").get_to(sampling.temperature);
    in.at("top_p").get_to(sampling.top_p);
    in.at("top_k").get_to(sampling.top_k);
    in.at("min_p").get_to(sampling.min_p);
    in.at("repetition_penalty").get_to(sampling.repetition_penalty);
    in.at("presence_penalty").get_to(sampling.presence_penalty);
    in.at("frequency_penalty").get_to(sampling.frequency_penalty);
    in.at("logprobs").get_to(sampling.logprobs);
    sampling.prompt_logprobs = in.value("prompt_logprobs", -1);  // older records have none
    in.at("max_tokens").get_to(sampling.max_tokens);
    in.at("min_tokens").get_to(sampling.min_tokens);
    in.at("ignore_eos").get_to(sampling.ignore_eos);
    in.at("stop_token_ids").get_to(sampling.stop_token_ids);
    for (const json& bias : in.at("logit_bias")) {
      sampling.logit_bias.push_back({bias.at(0).get<TokenId>(), bias.at(1).get<float>()});
    }
    sampling.seed = in.at("seed").get<uint64_t>();
  } catch (const json::exception& error) {
    return invalid_argument(fmt::format("an arrival of the record is broken: {}", error.what()));
  }
  if (request.prompt.empty() || request.n < 1 || request.sampling.max_tokens < 1) {
    return invalid_argument(
        "an arrival of the record has no prompt, no choices or no tokens to make");
  }
  return request;
}

}  // namespace tandem
