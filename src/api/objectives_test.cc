#include "api/objectives.h"

#include <gtest/gtest.h>

namespace tandem::api {
namespace {

using namespace std::chrono_literals;

std::vector<Objective> objectives() {
  const std::vector<std::string> flags = {
      "chat class=latency_sensitive level=-1 ttft=500ms+2ms/tok,max=8s tpot=50ms",
      "night\tclass=flex", "plain"};
  auto parsed = parse_objectives(flags);
  EXPECT_TRUE(parsed.ok());
  return std::move(parsed).value();
}

Result<ServiceGrant> with(std::vector<std::pair<std::string, std::string>> headers,
                          const ServiceGrant& of_key = {}) {
  HttpRequest request;
  request.headers = std::move(headers);
  return grant_for(request, of_key, objectives());
}

constexpr const char* kHeader = "x-llm-d-inference-objective";

TEST(Objectives, ANameStandsForClassLevelAndTargets) {
  const auto chat = with({{kHeader, "chat"}});
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(chat->service_class, ServiceClass::kLatencySensitive);
  EXPECT_EQ(chat->level, -1);
  EXPECT_EQ(chat->slo.ttft, (TtftRule{.base = 500ms, .per_token = 2ms, .cap = 8s}));
  EXPECT_EQ(chat->slo.tpot, 50ms);
  EXPECT_EQ(with({{kHeader, "night"}})->service_class, ServiceClass::kBestEffort);
}

TEST(Objectives, WhatTheNameLeavesOpenIsTheKeysAndSoAreItsCaps) {
  const ServiceGrant key{.service_class = ServiceClass::kBestEffort,
                         .level = 3,
                         .slo = {.ttft = std::nullopt, .tpot = 90ms},
                         .best_class = ServiceClass::kLatencySensitive,
                         .least_level = 2};
  const auto night = with({{kHeader, "night"}}, key);
  EXPECT_EQ(night->level, 3);
  EXPECT_EQ(night->slo.tpot, 90ms);
  const auto chat = with({{kHeader, "chat"}}, key);
  EXPECT_EQ(chat->level, -1);
  EXPECT_EQ(chat->least_level, 2);
  const auto terms = settle({}, *chat, {}, 10);
  ASSERT_TRUE(terms.ok());
  EXPECT_EQ(terms->service_class, ServiceClass::kLatencySensitive);
  EXPECT_EQ(terms->level, 2) << "brought within what the key may";
}

TEST(Objectives, ANameThatIsNotKnownChangesNothing) {
  const ServiceGrant key{.level = 7};
  for (const char* name : {"", "Chat", "chat ", "other", "\xff"}) {
    EXPECT_EQ(*with({{kHeader, name}}, key), key) << name;
  }
  EXPECT_EQ(*with({}, key), key);
  EXPECT_EQ(*with({{kHeader, "plain"}}, key), key);
}

TEST(Objectives, ARepeatedHeaderMustSayTheSame) {
  EXPECT_TRUE(with({{kHeader, "chat"}, {kHeader, "chat"}}).ok());
  const auto two = with({{kHeader, "chat"}, {kHeader, "night"}});
  ASSERT_FALSE(two.ok());
  EXPECT_EQ(two.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(two.error().param, kHeader);
}

TEST(Objectives, WrongOnesAreRefused) {
  const std::vector<std::vector<std::string>> wrong = {
      {""},           {"  "},         {"a level=x"},         {"a speed=9"},
      {"a class=no"}, {"a ttft=0ms"}, {"a level=1 level=2"}, {"a", "a"},
      {"a b"},        {"a tpot=-1"},  {"a max-class=flex"},  {"a min-level=1"},
      {"\xff"},       {"# a"},        {"a min-ttft=1s"},     {"a min-tpot=1s"}};
  for (const auto& flags : wrong) {
    const auto parsed = parse_objectives(flags);
    ASSERT_FALSE(parsed.ok()) << flags.front();
    EXPECT_EQ(parsed.error().param, "objective");
  }
  EXPECT_FALSE(parse_objectives(std::vector<std::string>(1001, "a")).ok());
  EXPECT_TRUE(parse_objectives(std::vector<std::string>{})->empty());
}

}  // namespace
}  // namespace tandem::api
