// The routes, over a real socket.
#include "api/server.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "api/test_support.h"

namespace tandem::api {
namespace {

using Json = nlohmann::json;

TEST(Server, ModelsAreListedAndFound) {
  TestServer test;
  const ClientResponse list = test.get("/v1/models");
  EXPECT_EQ(list.status, 200);
  EXPECT_EQ(list.headers.at("content-type"), "application/json");
  EXPECT_EQ(Json::parse(list.body)["data"][0]["max_model_len"], 64);
  EXPECT_EQ(Json::parse(test.get("/v1/models/small").body)["id"], "small");
  EXPECT_EQ(Json::parse(test.get("/v1/models/sm%61ll").body)["id"], "small");
  const ClientResponse unknown = test.get("/v1/models/none");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(Json::parse(unknown.body)["error"]["code"], "model_not_found");
}

TEST(Server, SmallRoutesAnswer) {
  ServerOptions options;
  options.version = "1.2.3";
  options.config_json = [] { return std::string(R"({"dtype":"bf16"})"); };
  options.metrics.emplace_back([] { return std::string("tandem_engine_thing 1\n"); });
  TestServer test(std::move(options));
  EXPECT_EQ(test.get("/version").body, R"({"version":"1.2.3"})");
  EXPECT_EQ(test.get("/v1/tandem/config").body, R"({"dtype":"bf16"})");
  EXPECT_EQ(test.get("/load").body, R"({"server_load":5,"running":2,"waiting":3})");
  const ClientResponse metrics = test.get("/metrics");
  EXPECT_TRUE(metrics.headers.at("content-type").starts_with("text/plain; version=0.0.4"));
  EXPECT_TRUE(metrics.body.starts_with("tandem_engine_thing 1\n"));
  EXPECT_NE(metrics.body.find("http_requests_total{handler=\"/version\",method=\"GET\","
                              "status=\"2xx\"} 1\n"),
            std::string::npos);
  EXPECT_EQ(test.post("/tokenize", R"({"prompt":"a"})").body,
            R"({"count":2,"max_model_len":64,"tokens":[256,97],"token_strs":null})");
  EXPECT_EQ(test.post("/detokenize", R"({"tokens":[97]})").body, R"({"prompt":"a"})");
}

TEST(Server, HealthFollowsTheState) {
  TestServer test;
  EXPECT_EQ(test.get("/health").status, 200);
  EXPECT_EQ(test.get("/health").body, "");
  EXPECT_EQ(test.post("/ping", "").status, 200);
  EXPECT_EQ(test.get("/ready").status, 200);
  test.frontend.set_state(ServingState::kLoading);
  EXPECT_EQ(test.get("/health").status, 503);
  EXPECT_EQ(test.get("/ready").body, R"({"status":"loading"})");
  test.frontend.set_state(ServingState::kDraining);
  EXPECT_EQ(test.get("/health").status, 200);
  EXPECT_EQ(test.get("/ready").status, 503);
  test.frontend.set_state(ServingState::kFailed);
  EXPECT_EQ(test.get("/health").status, 503);
  EXPECT_EQ(test.get("/ready").body, R"({"status":"failed"})");
}

TEST(Server, HealthAndReadinessSayWhyTheEngineFailed) {
  TestServer test;
  test.frontend.fail("the \"GPU\" is lost; restart");
  const ClientResponse health = test.get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(Json::parse(health.body)["error"]["message"],
            "the server has failed: the \"GPU\" is lost; restart");
  const ClientResponse ready = test.get("/ready");
  EXPECT_EQ(ready.status, 503);
  EXPECT_EQ(Json::parse(ready.body),
            (Json{{"status", "failed"}, {"reason", "the \"GPU\" is lost; restart"}}));
}

TEST(Server, UnknownPathsAndMethodsAreJsonErrors) {
  TestServer test;
  const ClientResponse missing = test.get("/v1/nothing?secret=1");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(Json::parse(missing.body)["error"]["code"], "not_found");
  const ClientResponse wrong = test.get("/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST");
  EXPECT_EQ(Json::parse(wrong.body)["error"]["code"], "method_not_allowed");
}

// A tick or a connection may be on its way to the loop just when it is told to end.
TEST(Server, EndsAtAnyMoment) {
  for (int i = 0; i < 200; ++i) {
    ServerOptions options;
    options.tick = std::chrono::microseconds(20);
    TestServer test(std::move(options));
    if (i % 2 == 0) {
      Client client(test.port());
      client.close();
    }
  }
}

TEST(Server, HeadHasNoBody) {
  TestServer test;
  Client client(test.port());
  client.send("HEAD /version HTTP/1.1\r\nHost: x\r\n\r\n");
  const ClientResponse head = client.read_response("HEAD");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), "21");
  client.get("/health");
  EXPECT_EQ(client.read_response().status, 200);
}

TEST(Server, KeysGuardV1Only) {
  ServerOptions options;
  options.api_keys = {{.key = "one"}, {.key = "two"}};
  TestServer test(std::move(options));
  for (const char* path : {"/health", "/ping", "/metrics", "/version"}) {
    EXPECT_EQ(test.get(path).status, 200) << path;
  }
  const ClientResponse refused = test.get("/v1/models");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.at("www-authenticate"), "Bearer");
  EXPECT_EQ(Json::parse(refused.body)["error"]["code"], "invalid_api_key");
  EXPECT_EQ(test.get("/v1/none").status, 401);
  EXPECT_EQ(test.get("/v1/models", "Authorization: Bearer wrong\r\n").status, 401);
  EXPECT_EQ(test.get("/v1/models", "Authorization: Bearer two\r\n").status, 200);
}

TEST(Server, KeysAreTenants) {
  ServerOptions options;
  options.api_keys = {{.key = "one"}, {.key = "two"}};
  TestServer test(std::move(options));
  test.frontend.answer_at_once("a");
  const std::string salted = R"({"prompt":"a","cache_salt":"s"})";
  test.post("/v1/completions", R"({"prompt":"a"})", "Authorization: Bearer one\r\n");
  test.post("/v1/completions", salted, "Authorization: Bearer two\r\n");
  EXPECT_EQ(test.frontend.request(0).tenant, "key0");
  EXPECT_EQ(test.frontend.request(1).tenant, "key1/s");
}

TEST(Server, IdsComeBack) {
  TestServer test;
  const ClientResponse named =
      test.get("/version", "X-Request-Id: my-id\r\nX-Correlation-ID: corr\r\n");
  EXPECT_EQ(named.headers.at("x-request-id"), "my-id");
  EXPECT_EQ(named.headers.at("x-correlation-id"), "corr");
  const ClientResponse generated = test.get("/version");
  EXPECT_EQ(generated.headers.at("x-request-id").size(), 32U);
  EXPECT_NE(test.get("/version").headers.at("x-request-id"), generated.headers.at("x-request-id"));
}

TEST(Server, AnswersAreDated) {
  TestServer test;  // its clock says 1234 s
  EXPECT_EQ(test.get("/version").headers.at("date"), "Thu, 01 Jan 1970 00:20:34 GMT");
  EXPECT_EQ(test.get("/no/such/path").headers.at("date"), "Thu, 01 Jan 1970 00:20:34 GMT");
  test.frontend.answer_at_once("a");
  EXPECT_EQ(test.post("/v1/completions", R"({"prompt":"a","stream":true})").headers.at("date"),
            "Thu, 01 Jan 1970 00:20:34 GMT");
}

TEST(Server, AnEncodedBodyIsRefusedAndTheConnectionStays) {
  TestServer test;
  Client client(test.port());
  client.post("/v1/completions", R"({"prompt":"a"})", "Content-Encoding: gzip\r\n");
  client.post("/tokenize", R"({"prompt":"a"})", "Content-Encoding: identity\r\n");
  EXPECT_EQ(client.read_response().status, 415);
  EXPECT_EQ(client.read_response().status, 200);
}

TEST(Server, BrowsersAreAnswered) {
  ServerOptions options;
  options.api_keys = {{.key = "one"}};
  TestServer test(std::move(options));
  Client client(test.port());
  client.send(
      "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\nOrigin: http://page\r\n"
      "Access-Control-Request-Method: POST\r\n\r\n");
  const ClientResponse preflight = client.read_response();
  EXPECT_EQ(preflight.status, 200);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "*");
  const ClientResponse plain = test.get("/v1/models", "Origin: http://page\r\n");
  EXPECT_EQ(plain.headers.at("access-control-allow-origin"), "*");
  TestServer keyless;
  EXPECT_FALSE(keyless.get("/v1/models", "Origin: http://page\r\n")
                   .headers.contains("access-control-allow-origin"));
  EXPECT_EQ(keyless.get("/v1/models", "Origin: http://localhost:3000\r\n")
                .headers.at("access-control-allow-origin"),
            "http://localhost:3000");
}

TEST(Server, TheVersionNamesTheCommit) {
  ServerOptions options;
  options.version = "1.2.3";
  options.commit = "54d7ab1b95b7";
  TestServer test(std::move(options));
  EXPECT_EQ(test.get("/version").body, R"({"version":"1.2.3","commit":"54d7ab1b95b7"})");
}

TEST(Server, TargetsMayNameTheHost) {
  ServerOptions options;
  options.api_keys = {{.key = "one"}};
  TestServer test(std::move(options));
  EXPECT_EQ(test.get("http://x/version").status, 200);
  EXPECT_EQ(test.get("http://x/v1/models").status, 401) << "the key counts for the path";
  EXPECT_EQ(test.get("http://x/v1/models", "Authorization: Bearer one\r\n").status, 200);
}

TEST(Server, ConnectionsAreKeptAndPipelined) {
  TestServer test;
  Client client(test.port());
  for (int i = 0; i < 3; ++i) {
    client.get("/version");
    const ClientResponse response = client.read_response();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.headers.at("connection"), "keep-alive");
  }
  client.send(
      "GET /version HTTP/1.1\r\nHost: x\r\n\r\nGET /none HTTP/1.1\r\nHost: x\r\n\r\n"
      "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_EQ(client.read_response().status, 404);
  const ClientResponse last = client.read_response();
  EXPECT_EQ(last.status, 200);
  EXPECT_EQ(last.headers.at("connection"), "close");
  EXPECT_TRUE(client.closed_by_server());
}

TEST(Server, Http10IsAnsweredAndClosed) {
  TestServer test;
  Client client(test.port());
  client.send("GET /version HTTP/1.0\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_TRUE(client.closed_by_server());
}

TEST(Server, AnEndedSendingSideStillGetsItsAnswer) {
  TestServer test;
  Client client(test.port());
  client.send("GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 200);
}

TEST(Server, SeveralThreadsShareTheConnections) {
  ServerOptions options;
  options.io_threads = 3;
  TestServer test(std::move(options));
  test.frontend.answer_at_once("abc");
  for (int i = 0; i < 9; ++i) {
    const ClientResponse response = test.post("/v1/completions", R"({"prompt":"a"})");
    EXPECT_EQ(Json::parse(response.body)["choices"][0]["text"], "abc");
  }
}

TEST(Server, BindErrorsSayWhatToDo) {
  TestServer test;
  FakeFrontend frontend;
  const auto error_of = [&](const ServerOptions& options) {
    const Status checked = Server::check(options);
    const auto started = Server::start(options, {{.frontend = frontend,
                                                  .tokenizer = test.test_model.tokenizer,
                                                  .chat_template = test.test_model.chat_template,
                                                  .defaults = {}}});
    // The check passes for a port in use: the server that is to be restarted may hold it.
    EXPECT_EQ(checked.ok(), started.ok() || options.port == test.port());
    return started.ok() ? std::string() : started.error().message;
  };
  ServerOptions taken;
  taken.port = test.port();
  EXPECT_NE(error_of(taken).find("another program uses it"), std::string::npos);
  ServerOptions elsewhere;
  elsewhere.host = "203.0.113.1";
  EXPECT_NE(error_of(elsewhere).find("no such address"), std::string::npos);
  ServerOptions nowhere;
  nowhere.host = "not a host";
  EXPECT_NE(error_of(nowhere).find("cannot find the address"), std::string::npos);
  ServerOptions keyless;
  keyless.port = 0;
  keyless.api_keys = {{.key = ""}};
  EXPECT_NE(error_of(keyless).find("API key is empty"), std::string::npos);
}

}  // namespace
}  // namespace tandem::api
