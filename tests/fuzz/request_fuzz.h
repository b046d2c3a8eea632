// What holds for every body of a generation, shared by the two endpoints' targets.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "../src/openai/test_support.h"
#include "fuzz/fuzz.h"
#include "node/request_json.h"
#include "openai/error_body.h"
#include "openai/generation.h"
#include "openai/generation_request.h"

namespace tandem::fuzz {

// A context that takes the longest inputs.
struct FuzzModel : openai::TestModel {
  FuzzModel() { model.max_model_len = 1 << 17; }
};

// What is accepted can be recorded and read again.
inline void check_record(const Request& request) {
  nlohmann::json written = request_to_json(request);
  written["seed"] = request.sampling.seed.value_or(0);
  const Result<Request> read = request_from_json(written);
  CHECK(read.ok(), "{}", read.error().message);
  CHECK(request_to_json(*read) == request_to_json(request), "a record reads otherwise");
}

// The scores of the prompts arrive, a token each, and the end.
inline void answer(const openai::GenerationRequest& parsed, const openai::TestModel& model) {
  openai::Generation generation(parsed, {.id = "x"}, model.tokenizer);
  std::string out;
  for (size_t prompt = 0; prompt < parsed.prompts.size(); ++prompt) {
    std::vector<TokenEvent> events;
    if (parsed.sampling.prompt_logprobs >= 0) {
      TokenEvent& event = events.emplace_back();
      event.kind = TokenEvent::Kind::kPrompt;
      event.prompt_logprobs =
          std::make_unique<std::vector<LogprobInfo>>(parsed.prompts[prompt].size() - 1);
    }
    for (int32_t choice = 0; choice < parsed.n; ++choice) {
      events.push_back(openai::token_event('a', choice));
      events.push_back(openai::finish_event(FinishReason::kLength, choice));
    }
    use(generation.take(prompt, events, out).size());
  }
  CHECK(generation.ended());
  // Reading a long answer back would take most of the time that the answer may take.
  constexpr size_t kMostReadBack = 128 << 10;
  if (!generation.streams()) {
    const std::string body = generation.body();
    CHECK(body.size() > kMostReadBack || nlohmann::json::accept(body));
  }
}

inline void check_error(const Error& error) {
  CHECK(!error.message.empty());
  CHECK(nlohmann::json::accept(openai::error_body(error, "")), "{}", error.message);
}

inline void parse_body(openai::Endpoint endpoint, std::string_view body) {
  static const FuzzModel model;
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
  bool fits = true;
  for (size_t prompt = 0; prompt < parsed->prompts.size(); ++prompt) {
    const Result<Request> request = openai::make_request(*parsed, prompt, model.model);
    if (!request.ok()) {
      check_error(request.error());
      fits = false;
      continue;
    }
    CHECK(!request->prompt.empty() && request->n >= 1 && request->sampling.max_tokens >= 1);
    CHECK(std::ssize(request->prompt) + request->sampling.max_tokens <= model.model.max_model_len);
    for (const TokenId token : request->prompt) {
      CHECK(token >= 0 && token < model.model.vocabulary, "token {}", token);
    }
    check_record(*request);
  }
  if (fits) {
    answer(*parsed, model);
  }
}

}  // namespace tandem::fuzz
