// A server of two models: each request goes to the front end of the model that it names.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "api/test_support.h"

namespace tandem::api {
namespace {

ServedModel large_model() {
  ServedModel model = openai::tiny_model();
  model.names = {"large"};
  model.root = "large-folder";
  model.max_model_len = 128;
  model.max_choices = 1;
  return model;
}

class TwoModels : public ::testing::Test {
 protected:
  ClientResponse get(std::string_view path) {
    Client client(server_->port());
    client.get(path);
    return client.read_response();
  }
  ClientResponse post(std::string_view path, std::string_view body) {
    Client client(server_->port());
    client.post(path, body);
    return client.read_response();
  }

  openai::TestModel test_;
  FakeFrontend tiny_;
  FakeFrontend large_{large_model()};
  const text::ChatTemplate plain_ = text::ChatTemplate::plain({});
  std::unique_ptr<Server> server_ = start_server({}, {{.frontend = tiny_,
                                                       .tokenizer = test_.tokenizer,
                                                       .chat_template = test_.chat_template,
                                                       .defaults = {}},
                                                      {.frontend = large_,
                                                       .tokenizer = test_.tokenizer,
                                                       .chat_template = plain_,
                                                       .defaults = {}}});
};

TEST_F(TwoModels, EachRequestGoesToItsOwn) {
  tiny_.answer_at_once("of tiny");
  large_.answer_at_once("of large");
  const auto text_of = [&](std::string_view model) {
    const ClientResponse response =
        post("/v1/completions", R"({"prompt":"a","model":")" + std::string(model) + "\"}");
    EXPECT_EQ(response.status, 200) << response.body;
    const openai::Json reply = openai::Json::parse(response.body);
    EXPECT_EQ(reply["model"], model.empty() ? "tiny" : model);
    return reply["choices"][0]["text"].get<std::string>();
  };
  EXPECT_EQ(text_of("tiny"), "of tiny");
  EXPECT_EQ(text_of("large"), "of large");
  EXPECT_EQ(text_of("small"), "of tiny") << "an alias";
  EXPECT_EQ(text_of(""), "of tiny") << "the first";
  EXPECT_EQ(tiny_.submitted(), 3U);
  EXPECT_EQ(large_.submitted(), 1U);
}

TEST_F(TwoModels, AnUnknownModelIsRefusedWithAllNames) {
  const ClientResponse response = post("/v1/completions", R"({"prompt":"a","model":"huge"})");
  EXPECT_EQ(response.status, 404);
  const openai::Json error = openai::Json::parse(response.body)["error"];
  EXPECT_EQ(error["code"], "model_not_found");
  EXPECT_EQ(error["message"],
            "the model 'huge' does not exist here; this server has 'tiny', 'small', 'large'");
}

TEST_F(TwoModels, LimitsTemplatesAndTokensAreThoseOfTheModelNamed) {
  const std::string two = R"("prompt":"a","n":2,"max_tokens":1)";
  EXPECT_EQ(post("/v1/completions", "{" + two + R"(,"model":"large"})").status, 400);
  Client client(server_->port());
  client.post("/v1/completions", "{" + two + "}");
  EXPECT_EQ(tiny_.request(0).n, 2);
  EXPECT_EQ(large_.submitted(), 0U);
  const auto tokens = [&](std::string_view model) {
    const std::string body =
        R"({"messages":[{"role":"user","content":"hi"}],"model":")" + std::string(model) + "\"}";
    return openai::Json::parse(post("/tokenize", body).body);
  };
  EXPECT_EQ(tokens("tiny")["max_model_len"], 64);
  EXPECT_EQ(tokens("large")["max_model_len"], 128);
  EXPECT_NE(tokens("tiny")["tokens"], tokens("large")["tokens"]);
}

TEST_F(TwoModels, StopsAndCancelsReachTheFrontendThatHasTheRequest) {
  Client client(server_->port());
  client.post("/v1/completions",
              R"({"prompt":"a","model":"large","stop":"b","max_tokens":9,"stream":true})");
  large_.emit_text(0, "ab");
  large_.wait_for_stops(1);
  large_.emit_finish(0, FinishReason::kStop);
  client.read_until("[DONE]");
  Client leaving(server_->port());
  leaving.post("/v1/completions", R"({"prompt":"a","model":"large","max_tokens":9,"stream":true})");
  large_.request(1);
  leaving.close();
  large_.wait_for_cancels(1);
  EXPECT_EQ(tiny_.submitted(), 0U);
  EXPECT_TRUE(tiny_.stops().empty());
}

TEST_F(TwoModels, BothAreListedAndCounted) {
  const openai::Json list = openai::Json::parse(get("/v1/models").body);
  ASSERT_EQ(list["data"].size(), 3U);
  EXPECT_EQ(list["data"][2]["id"], "large");
  EXPECT_EQ(list["data"][2]["root"], "large-folder");
  EXPECT_EQ(openai::Json::parse(get("/v1/models/large").body)["max_model_len"], 128);
  EXPECT_EQ(openai::Json::parse(get("/load").body)["server_load"], 10);
}

TEST_F(TwoModels, OneThatLoadsRefusesItsOwnRequestsOnly) {
  large_.set_state(ServingState::kLoading);
  large_.set_gate([](size_t) {
    return Status(Error{ErrorCode::kUnavailable, "the model is still loading", ""});
  });
  tiny_.answer_at_once("x");
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"a"})").status, 200);
  const ClientResponse refused = post("/v1/completions", R"({"prompt":"a","model":"large"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("x-llm-d-request-dropped-reason"), "loading");
  EXPECT_EQ(get("/ready").status, 503) << "the server is ready once all of its models are";
  EXPECT_EQ(openai::Json::parse(get("/ready").body)["status"], "loading");
  tiny_.set_state(ServingState::kFailed);
  EXPECT_EQ(openai::Json::parse(get("/ready").body)["status"], "failed");
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"a"})").status, 503);
  EXPECT_EQ(tiny_.submitted(), 1U) << "no body is parsed while no model takes requests";
}

}  // namespace
}  // namespace tandem::api
