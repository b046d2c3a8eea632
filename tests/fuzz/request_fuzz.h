// What holds for every body of a generation, shared by the two endpoints' targets.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "../src/openai/test_support.h"
#include "fuzz/fuzz.h"
#include "openai/error_body.h"
#include "openai/generation_request.h"

namespace tandem::fuzz {

inline void check_error(const Error& error) {
  CHECK(!error.message.empty());
  CHECK(nlohmann::json::accept(openai::error_body(error, "")), "{}", error.message);
}

inline void parse_body(openai::Endpoint endpoint, std::string_view body) {
  static const openai::TestModel model;
  const Result<openai::GenerationRequest> parsed =
      openai::parse_generation(endpoint, body, model.context);
  if (!parsed.ok()) {
    check_error(parsed.error());
    return;
  }
  CHECK(!parsed->prompts.empty());
  const ServiceClaim& claim = parsed->service;
  CHECK(!claim.ttft || (claim.ttft->target(1) > Nanos{0} && !claim.ttft_name.empty()));
  CHECK(!claim.tpot || (*claim.tpot > Nanos{0} && !claim.tpot_name.empty()));
  for (size_t prompt = 0; prompt < parsed->prompts.size(); ++prompt) {
    const Result<Request> request = openai::make_request(*parsed, prompt, model.model);
    if (!request.ok()) {
      check_error(request.error());
      continue;
    }
    CHECK(!request->prompt.empty() && request->n >= 1 && request->sampling.max_tokens >= 1);
    CHECK(std::ssize(request->prompt) + request->sampling.max_tokens <= model.model.max_model_len);
    for (const TokenId token : request->prompt) {
      CHECK(token >= 0 && token < model.model.vocabulary, "token {}", token);
    }
  }
}

}  // namespace tandem::fuzz
