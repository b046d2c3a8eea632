#include "openai/token_routes.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "openai/test_support.h"

namespace tandem::openai {
namespace {

TEST(TokenRoutes, TextIsTokenizedInVllmsShape) {
  const TestModel test;
  EXPECT_EQ(tokenize(R"({"prompt":"ab"})", test.directory).value(),
            R"({"count":3,"max_model_len":64,"tokens":[256,97,98],"token_strs":null})");
  EXPECT_EQ(tokenize(R"({"model":"tiny","prompt":"a\u00e9","add_special_tokens":false,)"
                     R"("return_token_strs":true})",
                     test.directory)
                .value(),
            "{\"count\":3,\"max_model_len\":64,\"tokens\":[97,195,169],"
            "\"token_strs\":[\"a\",\"\uFFFD\",\"\uFFFD\"]}");
  EXPECT_EQ(tokenize(R"({"prompt":"","add_special_tokens":false,"return_token_strs":true})",
                     test.directory)
                .value(),
            R"({"count":0,"max_model_len":64,"tokens":[],"token_strs":[]})");
}

TEST(TokenRoutes, MessagesAreTokenizedAsTheChatRouteWould) {
  const TestModel test;
  const Json answer = Json::parse(
      tokenize(R"({"messages":[{"role":"user","content":"hi"}]})", test.directory).value());
  EXPECT_EQ(answer["count"], 19);
  EXPECT_EQ(answer["tokens"][0], '[');
}

TEST(TokenRoutes, TokensBecomeTextWithSpecialOnes) {
  const TestModel test;
  EXPECT_EQ(detokenize(R"({"tokens":[256,104,195,169,257]})", test.directory).value(),
            R"({"prompt":"<s>hé</s>"})");
  EXPECT_EQ(detokenize(R"({"tokens":[]})", test.directory).value(), R"({"prompt":""})");
}

TEST(TokenRoutes, BadBodiesAreRefusedByName) {
  const TestModel test;
  EXPECT_EQ(tokenize("{}", test.directory).error().param, "prompt");
  EXPECT_EQ(tokenize(R"({"prompt":["a"]})", test.directory).error().param, "prompt");
  EXPECT_EQ(tokenize(R"({"prompt":"a","model":"x"})", test.directory).error().code,
            ErrorCode::kNotFound);
  EXPECT_EQ(tokenize(R"({"prompt":"a","add_special_tokens":1})", test.directory).error().param,
            "add_special_tokens");
  EXPECT_EQ(detokenize("{}", test.directory).error().param, "tokens");
  EXPECT_EQ(detokenize(R"({"tokens":"a"})", test.directory).error().param, "tokens");
  EXPECT_EQ(detokenize(R"({"tokens":[260]})", test.directory).error().param, "tokens");
  EXPECT_EQ(detokenize(R"({"tokens":[-1]})", test.directory).error().param, "tokens");
}

TEST(TokenRoutes, ModelsAreListedWithTheirLength) {
  const TestModel test;
  const ModelDirectory& models = test.directory;
  EXPECT_EQ(model_card("small", models).value(),
            R"({"id":"small","object":"model","created":1700000000,"owned_by":"tandem",)"
            R"("root":"tiny-folder","parent":null,"max_model_len":64})");
  const Json list = Json::parse(model_list(models));
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 2U);
  EXPECT_EQ(list["data"][0]["id"], "tiny");
  EXPECT_EQ(model_card("none", models).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace tandem::openai
