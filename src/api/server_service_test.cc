// Class, level and SLO over a real socket: from the body, the headers, the key and the server to
// the request that the Frontend gets, and back into the answer.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "api/server.h"
#include "api/test_support.h"

namespace tandem::api {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

std::string body(std::string_view fields) {
  return fmt::format(R"({{"prompt":"ab"{}{}}})", fields.empty() ? "" : ",", fields);
}

ServerOptions with_keys() {
  ServerOptions options;
  options.service = {.service_class = ServiceClass::kLatencySensitive,
                     .slo = {.ttft = TtftRule{.base = 2s}, .tpot = 200ms}};
  options.objectives = {
      {.name = "night", .gives = {.service_class = ServiceClass::kBestEffort, .level = 4}}};
  options.api_keys = {
      {.key = "plain"},
      {.key = "chat", .grant = {.level = -2, .slo = {.ttft = TtftRule{.base = 1s}, .tpot = {}}}},
      {.key = "batch", .grant = {.best_class = ServiceClass::kBestEffort, .least_level = 0}}};
  return options;
}

TEST(ServerService, ARequestGetsWhatItsDoorsSay) {
  TestServer test(with_keys());
  test.frontend.answer_at_once("x");
  const auto ask = [&](std::string_view key, std::string_view fields, std::string_view headers) {
    const ClientResponse answer =
        test.post("/v1/completions", body(fields),
                  fmt::format("Authorization: Bearer {}\r\n{}", key, headers));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Json::parse(answer.body)["service_tier"].get<std::string>();
  };
  EXPECT_EQ(ask("plain", "", ""), "default");
  EXPECT_EQ(test.frontend.request(0).service_class, ServiceClass::kLatencySensitive);
  EXPECT_EQ(test.frontend.request(0).slo, (Slo{TtftRule{.base = 2s}, 200ms}));
  EXPECT_EQ(ask("chat", "", ""), "default");
  EXPECT_EQ(test.frontend.request(1).level, -2);
  EXPECT_EQ(test.frontend.request(1).slo, (Slo{TtftRule{.base = 1s}, 200ms}));
  EXPECT_EQ(ask("batch", "", ""), "flex") << "capped, and told";
  EXPECT_EQ(test.frontend.request(2).service_class, ServiceClass::kBestEffort);
  EXPECT_EQ(test.frontend.request(2).slo, Slo{});
  EXPECT_EQ(ask("chat", R"("service_tier":"priority","priority":7,"slo":{"ttft_ms":300})",
                "x-llm-d-slo-ttft-ms: 400\r\nx-slo-tpot-ms: 40\r\n"),
            "priority");
  EXPECT_EQ(test.frontend.request(3).level, 7);
  EXPECT_EQ(test.frontend.request(3).slo, (Slo{TtftRule{.base = 300ms}, 40ms}));
  EXPECT_FALSE(test.frontend.request(3).explain);
  EXPECT_EQ(ask("plain", R"("service_tier":"flex","tandem":{"explain":true})", ""), "flex");
  EXPECT_TRUE(test.frontend.request(4).explain);
  EXPECT_EQ(ask("chat", "", "x-llm-d-inference-objective: night\r\n"), "flex");
  EXPECT_EQ(test.frontend.request(5).level, 4);
  EXPECT_EQ(ask("chat", R"("service_tier":"priority")", "x-llm-d-inference-objective: night\r\n"),
            "priority")
      << "what the request says itself stands over it";
}

TEST(ServerService, EveryChunkOfAStreamNamesTheTier) {
  TestServer test(with_keys());
  test.frontend.answer_at_once("abc");
  const ClientResponse stream = test.post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"hi"}],"stream":true,"service_tier":"flex"})",
      "Authorization: Bearer plain\r\n");
  size_t chunks = 0;
  for (size_t at = stream.body.find("data: {"); at != std::string::npos;
       at = stream.body.find("data: {", at + 1)) {
    ++chunks;
    EXPECT_EQ(Json::parse(stream.body.substr(
                  at + 6, stream.body.find("\n\n", at) - at - 6))["service_tier"],
              "flex");
  }
  EXPECT_EQ(chunks, 4U);  // role, three tokens, the last with the end
}

TEST(ServerService, WhatAKeyMayNotClaimIs403) {
  TestServer test(with_keys());
  for (const auto& [fields, param] : {std::pair(R"("service_tier":"priority")", "service_tier"),
                                      std::pair(R"("priority":-1)", "priority")}) {
    const ClientResponse refused =
        test.post("/v1/completions", body(fields), "Authorization: Bearer batch\r\n");
    EXPECT_EQ(refused.status, 403);
    const Json error = Json::parse(refused.body)["error"];
    EXPECT_EQ(error["code"], "class_not_allowed");
    EXPECT_EQ(error["type"], "permission_error");
    EXPECT_EQ(error["param"], param);
  }
  EXPECT_EQ(test.frontend.submitted(), 0U);
}

TEST(ServerService, WrongTargetsAre400AndNameTheirDoor) {
  TestServer test;
  const ClientResponse header =
      test.post("/v1/completions", body(""), "X-LLM-D-SLO-TTFT-ms: soon\r\n");
  EXPECT_EQ(header.status, 400);
  EXPECT_EQ(Json::parse(header.body)["error"]["param"], "x-llm-d-slo-ttft-ms");
  const ClientResponse field = test.post("/v1/completions", body(R"("slo":{"tpot_ms":0})"));
  EXPECT_EQ(field.status, 400);
  EXPECT_EQ(Json::parse(field.body)["error"]["param"], "slo.tpot_ms");
  EXPECT_EQ(test.frontend.submitted(), 0U);
}

TEST(ServerService, KeysThatAreReplacedChangeWhatTheyMay) {
  TestServer test(with_keys());
  test.frontend.answer_at_once("x");
  const auto ask = [&] {
    return test
        .post("/v1/completions", body(R"("service_tier":"priority")"),
              "Authorization: Bearer batch\r\n")
        .status;
  };
  EXPECT_EQ(ask(), 403);
  test.server->set_api_keys({{.key = "batch"}});
  EXPECT_EQ(ask(), 200);
}

}  // namespace
}  // namespace tandem::api
