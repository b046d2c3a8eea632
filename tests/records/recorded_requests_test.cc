// Every request that the API accepts can be written to a record and read again: one that cannot
// would make the whole record unreadable.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "node/request_json.h"
#include "openai/generation_request.h"
#include "openai/test_support.h"

namespace tandem {
namespace {

void expect_same_sampling(const SamplingParams& a, const SamplingParams& b) {
  EXPECT_EQ(a.temperature, b.temperature);
  EXPECT_EQ(a.top_p, b.top_p);
  EXPECT_EQ(a.top_k, b.top_k);
  EXPECT_EQ(a.min_p, b.min_p);
  EXPECT_EQ(a.repetition_penalty, b.repetition_penalty);
  EXPECT_EQ(a.presence_penalty, b.presence_penalty);
  EXPECT_EQ(a.frequency_penalty, b.frequency_penalty);
  EXPECT_EQ(a.logprobs, b.logprobs);
  EXPECT_EQ(a.prompt_logprobs, b.prompt_logprobs);
  EXPECT_EQ(a.max_tokens, b.max_tokens);
  EXPECT_EQ(a.min_tokens, b.min_tokens);
  EXPECT_EQ(a.ignore_eos, b.ignore_eos);
  EXPECT_EQ(a.stop_token_ids, b.stop_token_ids);
  ASSERT_EQ(a.logit_bias.size(), b.logit_bias.size());
  for (size_t i = 0; i < a.logit_bias.size(); ++i) {
    EXPECT_EQ(a.logit_bias[i].token, b.logit_bias[i].token);
    EXPECT_EQ(a.logit_bias[i].bias, b.logit_bias[i].bias);
  }
}

class RecordedRequests : public ::testing::Test {
 protected:
  // As the record does it: one line of JSON, with the seed that the engine drew.
  static void expect_recordable(const Request& request) {
    nlohmann::json written = request_to_json(request);
    written["seed"] = request.sampling.seed.value_or(7);
    const Result<Request> read = request_from_json(nlohmann::json::parse(written.dump()));
    ASSERT_TRUE(read.ok()) << read.error().message << ": " << written.dump();
    EXPECT_EQ(read->prompt, request.prompt);
    EXPECT_EQ(read->n, request.n);
    EXPECT_EQ(read->sampling.seed, request.sampling.seed.value_or(7));
    expect_same_sampling(read->sampling, request.sampling);
  }

  template <class T>
  const T& any(const std::vector<T>& values) {
    return values[random_() % values.size()];
  }

  std::mt19937 random_{11};
  openai::TestModel test_;
};

TEST_F(RecordedRequests, WhateverIsAcceptedIsReadAgain) {
  // Values at and beyond the ends of each field's range.
  const std::vector<std::pair<std::string, std::vector<std::string>>> fields = {
      {"temperature", {"0", "0.7", "1e-40", "1e10", "3e38", "1e39", "-1", "-0.0"}},
      {"top_p", {"1", "1e-40", "0.5", "1e-46", "1.1"}},
      {"top_k", {"-1", "0", "1", "2147483647", "2147483648"}},
      {"min_p", {"0", "1", "1e-40"}},
      {"repetition_penalty", {"1", "0.001", "1000", "1e-40", "3e38", "1.15"}},
      {"presence_penalty", {"-2", "2", "1e-40", "2.1"}},
      {"frequency_penalty", {"-2", "2", "0"}},
      {"max_tokens", {"1", "16", "2147483647", "2147483648", "1e1"}},
      {"min_tokens", {"0", "1", "16", "2147483647"}},
      {"seed", {"0", "-1", "9223372036854775807", "-9223372036854775808"}},
      {"n", {"1", "4", "5"}},
      {"logprobs", {"0", "20", "21"}},
      {"echo", {"true", "false"}},
      {"ignore_eos", {"true", "false"}},
      {"priority", {"2147483647", "-2147483647", "0"}},
      {"stop_token_ids", {"[]", "[0,259]", "[260]"}},
      {"logit_bias", {"{}", R"({"5":100,"05":-100,"259":1e-40})", R"({"5":101})"}}};
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string body = R"({"prompt":[1,2,3])";
    for (const auto& [name, values] : fields) {
      if (random_() % 4 == 0) {
        body += ",\"" + name + "\":" + any(values);
      }
    }
    body += "}";
    const auto parsed =
        openai::parse_generation(openai::Endpoint::kCompletions, body, test_.context);
    if (!parsed.ok()) {
      continue;
    }
    ++accepted;
    const Result<Request> request = openai::make_request(*parsed, 0, test_.model);
    ASSERT_TRUE(request.ok());
    expect_recordable(*request);
  }
  EXPECT_GT(accepted, 500);
}

TEST_F(RecordedRequests, ClassLevelAndTargetsAreReadAgain) {
  Request request;
  request.prompt = {1};
  request.service_class = ServiceClass::kBestEffort;
  request.level = -2147483647;
  request.slo.ttft = TtftRule{.base = Nanos{1}, .per_token = kLongestTarget};
  request.slo.tpot = kLongestTarget;
  request.tenant = "key0/\u4e2d\"\\\n";
  request.sampling.max_tokens = 1 << 30;
  nlohmann::json written = request_to_json(request);
  written["seed"] = 1;
  const Result<Request> read = request_from_json(nlohmann::json::parse(written.dump()));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->service_class, request.service_class);
  EXPECT_EQ(read->level, request.level);
  EXPECT_EQ(read->slo.ttft, request.slo.ttft);
  EXPECT_EQ(read->slo.tpot, request.slo.tpot);
  EXPECT_EQ(read->tenant, request.tenant);
  EXPECT_EQ(read->sampling.max_tokens, request.sampling.max_tokens);
}

}  // namespace
}  // namespace tandem
