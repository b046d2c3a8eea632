#include "openai/service_fields.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "openai/generation.h"
#include "openai/test_support.h"

namespace tandem::openai {
namespace {

using namespace std::chrono_literals;

Result<ServiceClaim> claim_of(std::string_view fields) {
  const Json json = Json::parse("{" + std::string(fields) + "}");
  return parse_service_claim(FieldReader(json));
}

TEST(ServiceFields, TierPriorityAndSloAreRead) {
  const auto claim = claim_of(R"("service_tier":"flex","priority":-3,"slo":{"ttft_ms":500.5,
                                 "tpot_ms":20})");
  ASSERT_TRUE(claim.ok()) << claim.error().message;
  EXPECT_EQ(claim->service_class, ServiceClass::kBestEffort);
  EXPECT_EQ(claim->level, -3);
  EXPECT_EQ(*claim->ttft, TtftRule{.base = 500500us});
  EXPECT_EQ(claim->tpot, 20ms);
  EXPECT_EQ(claim_of(R"("service_tier":"priority")")->service_class,
            ServiceClass::kLatencySensitive);
}

TEST(ServiceFields, TargetsMayHaveUnitsAndRules) {
  const auto claim = claim_of(R"("slo":{"ttft":"500ms+2ms/tok,max=8s","tpot":"1.5s"})");
  ASSERT_TRUE(claim.ok()) << claim.error().message;
  EXPECT_EQ(*claim->ttft, (TtftRule{500ms, 2ms, 8s}));
  EXPECT_EQ(claim->ttft_name, "slo.ttft");
  EXPECT_EQ(claim->tpot, 1500ms);
}

TEST(ServiceFields, WhatSaysNothingClaimsNothing) {
  for (const char* fields :
       {"", R"("service_tier":"auto")", R"("service_tier":"default")", R"("service_tier":"scale")",
        R"("service_tier":null,"priority":null,"slo":null)", R"("slo":{})",
        R"("slo":{"ttft_ms":null})"}) {
    const auto claim = claim_of(fields);
    ASSERT_TRUE(claim.ok()) << fields;
    EXPECT_FALSE(claim->service_class || claim->level || claim->ttft || claim->tpot) << fields;
  }
}

TEST(ServiceFields, WrongTargetsAreRefusedWithFieldAndCure) {
  for (const auto& [fields, param] : {
           std::pair(R"("service_tier":"gold")", "service_tier"),
           std::pair(R"("priority":1.5)", "priority"),
           std::pair(R"("slo":500)", "slo"),
           std::pair(R"("slo":{"ttft_s":1})", "slo.ttft_s"),
           std::pair(R"("slo":{"ttft_ms":0})", "slo.ttft_ms"),
           std::pair(R"("slo":{"ttft_ms":-5})", "slo.ttft_ms"),
           std::pair(R"("slo":{"ttft_ms":0.0001})", "slo.ttft_ms"),
           std::pair(R"("slo":{"ttft_ms":1e300})", "slo.ttft_ms"),
           std::pair(R"("slo":{"ttft_ms":18446744073709551615})", "slo.ttft_ms"),
           std::pair(R"("slo":{"ttft_ms":"500"})", "slo.ttft_ms"),
           std::pair(R"("slo":{"ttft_ms":"500ms+2ms/tok"})", "slo.ttft_ms"),
           std::pair(R"("slo":{"ttft_ms":true})", "slo.ttft_ms"),
           std::pair(R"("slo":{"ttft_ms":[1]})", "slo.ttft_ms"),
           std::pair(R"("slo":{"ttft":500})", "slo.ttft"),
           std::pair(R"("slo":{"ttft":""})", "slo.ttft"),
           std::pair(R"("slo":{"ttft":"0"})", "slo.ttft"),
           std::pair(R"("slo":{"ttft":"NaN"})", "slo.ttft"),
           std::pair(R"("slo":{"ttft":"5s","ttft_ms":5})", "slo.ttft_ms"),
           std::pair(R"("slo":{"tpot_ms":0})", "slo.tpot_ms"),
           std::pair(R"("slo":{"tpot_ms":{}})", "slo.tpot_ms"),
           std::pair(R"("slo":{"tpot":"1w"})", "slo.tpot"),
       }) {
    const auto claim = claim_of(fields);
    ASSERT_FALSE(claim.ok()) << fields;
    EXPECT_EQ(claim.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(claim.error().param, param) << fields;
    EXPECT_GT(claim.error().message.size(), 20U) << fields;
  }
}

TEST(ServiceFields, TheTierNamesTheClassThatIsUsed) {
  const ServiceTerms best_effort{.service_class = ServiceClass::kBestEffort};
  const ServiceDefaults flex_server{.service_class = ServiceClass::kBestEffort};
  const ServiceClaim asked{.service_class = ServiceClass::kLatencySensitive};
  EXPECT_EQ(tier_used({}, best_effort, {}), "flex");
  EXPECT_EQ(tier_used({}, {}, {}), "default");
  EXPECT_EQ(tier_used(asked, {}, {}), "priority");
  EXPECT_EQ(tier_used({}, {}, flex_server), "priority") << "its key's class";
}

// ---------------------------------------------------------------- the explanation

class ExplanationTest : public ::testing::Test {
 protected:
  Generation generation(std::string_view fields) {
    auto request = parse_generation(
        Endpoint::kCompletions, R"({"prompt":[1,2,3],)" + std::string(fields) + "}", test_.context);
    EXPECT_TRUE(request.ok()) << request.error().message;
    return {*request, {.id = "id", .created_unix_seconds = 1}, test_.tokenizer};
  }
  static std::vector<TokenEvent> answer() {
    std::vector<TokenEvent> events = text_events("ab");
    events.push_back(finish_event(FinishReason::kLength));
    events.back().finish->report =
        std::make_unique<ServiceReport>(ServiceReport{.service_class = ServiceClass::kBestEffort,
                                                      .level = 3,
                                                      .ttft_target = 500ms,
                                                      .slo_met = false,
                                                      .queue = 2ms,
                                                      .ttft = 600ms,
                                                      .mean_gap = 12500us,
                                                      .most_gap = 20ms,
                                                      .device_tokens = 1,
                                                      .host_tokens = 1,
                                                      .hops = 16,
                                                      .parked = 30ms,
                                                      .preemptions = 1});
    return events;
  }

  TestModel test_;
};

TEST_F(ExplanationTest, ItStandsInTheUsageOfAnAnswerThatAsked) {
  Generation explained = generation(R"("tandem":{"explain":true})");
  std::string out;
  auto events = answer();
  ASSERT_TRUE(explained.take(0, events, out).empty());
  const Json tandem = Json::parse(explained.body())["usage"]["tandem"];
  EXPECT_EQ(tandem["class"], "best_effort");
  EXPECT_EQ(tandem["level"], 3);
  const Json& choice = tandem["choices"][0];
  EXPECT_EQ(choice["slo"], Json::parse(R"({"ttft_ms":500.0,"met":false})"));
  EXPECT_EQ(choice["queue_ms"], 2.0);
  EXPECT_EQ(choice["ttft_ms"], 600.0);
  EXPECT_EQ(choice["mean_tbt_ms"], 12.5);
  EXPECT_EQ(choice["max_tbt_ms"], 20.0);
  EXPECT_EQ(choice["attention_tokens"], Json::parse(R"({"device":1,"host":1})"));
  EXPECT_EQ(choice["hops"], 16);
  EXPECT_EQ(choice["parked_ms"], 30.0);
  EXPECT_EQ(choice["preemptions"], 1);
}

TEST_F(ExplanationTest, AStreamThatAsksGetsAUsageChunkWithIt) {
  Generation explained = generation(R"("stream":true,"tandem":{"explain":true})");
  std::string out;
  auto events = answer();
  ASSERT_TRUE(explained.take(0, events, out).empty());
  const size_t at = out.rfind("data: {");
  const Json last = Json::parse(out.substr(at + 6, out.find("\n\n", at) - at - 6));
  EXPECT_TRUE(last["choices"].empty());
  EXPECT_EQ(last["usage"]["completion_tokens"], 2);
  EXPECT_EQ(last["usage"]["tandem"]["choices"][0]["hops"], 16);
  EXPECT_EQ(last["service_tier"], "default");
}

TEST_F(ExplanationTest, NobodyElseGetsIt) {
  Generation plain = generation(R"("tandem":{"explain":false})");
  std::string out;
  auto events = answer();
  ASSERT_TRUE(plain.take(0, events, out).empty());
  EXPECT_FALSE(Json::parse(plain.body())["usage"].contains("tandem"));
}

TEST_F(ExplanationTest, WhatItDoesNotKnowIsRefused) {
  for (const auto& [fields, param] : {std::pair(R"("tandem":true)", "tandem"),
                                      std::pair(R"("tandem":{"explian":true})", "tandem.explian"),
                                      std::pair(R"("tandem":{"explain":1})", "tandem.explain")}) {
    const auto request = parse_generation(
        Endpoint::kCompletions, R"({"prompt":[1],)" + std::string(fields) + "}", test_.context);
    ASSERT_FALSE(request.ok()) << fields;
    EXPECT_EQ(request.error().param, param);
  }
}

}  // namespace
}  // namespace tandem::openai
