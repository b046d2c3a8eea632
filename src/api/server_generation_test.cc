// Generated text over a real socket: whole, streamed, refused, stopped, drained.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "api/server.h"
#include "api/test_support.h"

namespace tandem::api {
namespace {

using Json = nlohmann::json;
constexpr std::string_view kChat = R"({"messages":[{"role":"user","content":"hi"}]})";
constexpr std::string_view kChatStream =
    R"({"messages":[{"role":"user","content":"hi"}],"stream":true})";

TEST(ServerGeneration, ACompletionIsAnsweredWhole) {
  TestServer test;
  test.frontend.answer_at_once("hello");
  const ClientResponse response =
      test.post("/v1/completions", R"({"prompt":"ab","max_tokens":5,"model":"small"})",
                "X-Request-Id: r1\r\n");
  EXPECT_EQ(response.status, 200);
  const Json body = Json::parse(response.body);
  EXPECT_EQ(body["id"], "cmpl-r1");
  EXPECT_EQ(body["created"], 1234);
  EXPECT_EQ(body["model"], "small");
  EXPECT_EQ(body["choices"][0]["text"], "hello");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 3);
  const Request& request = test.frontend.request(0);
  EXPECT_EQ(request.prompt.size(), 3U);
  EXPECT_EQ(request.sampling.max_tokens, 5);
  EXPECT_EQ(request.external_id, "r1");
  EXPECT_EQ(request.tenant, "");
}

TEST(ServerGeneration, AStreamArrivesStepByStep) {
  TestServer test;
  Client client(test.port());
  client.post("/v1/chat/completions", kChatStream);
  test.frontend.request(0);
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream"));
  EXPECT_NE(head.find("Transfer-Encoding: chunked"), std::string::npos);
  test.frontend.emit_text(0, "a");
  EXPECT_NE(client.read_until("\n\n\r\n").find(R"("content":"a")"), std::string::npos);
  test.frontend.emit_text(0, "b");
  EXPECT_NE(client.read_until("\n\n\r\n").find(R"("content":"b")"), std::string::npos);
  test.frontend.emit_finish(0, FinishReason::kStop);
  const std::string end = client.read_until("0\r\n\r\n");
  EXPECT_NE(end.find(R"("finish_reason":"stop")"), std::string::npos);
  EXPECT_NE(end.find("data: [DONE]\n\n"), std::string::npos);
  // The connection goes on.
  client.get("/health");
  EXPECT_EQ(client.read_response().status, 200);
}

TEST(ServerGeneration, AStreamOverHttp10EndsWithTheConnection) {
  TestServer test;
  test.frontend.answer_at_once("a");
  Client client(test.port());
  client.send(fmt::format("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}",
                          kChatStream.size(), kChatStream));
  const ClientResponse response = client.read_response();
  EXPECT_EQ(response.status, 200);
  EXPECT_FALSE(response.headers.contains("transfer-encoding"));
  EXPECT_TRUE(response.body.starts_with("data: {"));
  EXPECT_TRUE(response.body.ends_with("data: [DONE]\n\n"));
}

TEST(ServerGeneration, BodiesMayBeChunkedOrAnnounced) {
  TestServer test;
  test.frontend.answer_at_once("x");
  Client client(test.port());
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\n{\"pro\r\nb\r\nmpt\":\"abc\"}\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 200);
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n"
      "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send(R"({"prompt":"a"})");
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_EQ(test.frontend.submitted(), 2U);
}

TEST(ServerGeneration, LongBodiesAreParsedAside) {
  ServerOptions options;
  options.inline_parse_bytes = 10;
  TestServer test(std::move(options));
  test.frontend.answer_at_once("x");
  EXPECT_EQ(test.post("/v1/completions", R"({"prompt":"abcdef"})").status, 200);
  EXPECT_EQ(test.post("/v1/completions", R"({"prompt":1234567})").status, 400);
  EXPECT_EQ(test.post("/tokenize", R"({"prompt":"abcdef"})").status, 200);
  Client leaver(test.port());
  leaver.post("/v1/completions", R"({"prompt":"abcdef"})");
  leaver.close();
}

TEST(ServerGeneration, BadRequestsNameTheField) {
  TestServer test;
  const ClientResponse wrong = test.post("/v1/completions", R"({"prompt":"a","top_p":7})");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(Json::parse(wrong.body)["error"]["param"], "top_p");
  EXPECT_EQ(test.post("/v1/chat/completions", "not json").status, 400);
  EXPECT_EQ(test.post("/v1/chat/completions", "").status, 400);
  EXPECT_EQ(test.post("/v1/chat/completions", "{\"messages\":\"\xff\"}").status, 400);
  const ClientResponse model = test.post("/v1/completions", R"({"prompt":"a","model":"x"})");
  EXPECT_EQ(model.status, 404);
  EXPECT_EQ(Json::parse(model.body)["error"]["code"], "model_not_found");
  const ClientResponse too_long =
      test.post("/v1/completions", R"({"prompt":")" + std::string(100, 'a') + R"("})");
  EXPECT_EQ(too_long.status, 400);
  EXPECT_EQ(Json::parse(too_long.body)["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(test.frontend.submitted(), 0U);
}

TEST(ServerGeneration, AFullQueueIsToldBeforeTheStatusLine) {
  ServerOptions options;
  options.errors.overload_status = 529;
  TestServer test;
  TestServer other(std::move(options));
  const auto full = [](size_t) -> Status {
    return Error{ErrorCode::kOverloaded, "the queue is full; retry after 1500ms", ""};
  };
  test.frontend.set_gate(full);
  other.frontend.set_gate(full);
  const ClientResponse refused = test.post("/v1/chat/completions", kChatStream);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers.at("retry-after"), "2");
  EXPECT_EQ(refused.headers.at("retry-after-ms"), "1500");
  EXPECT_EQ(refused.headers.at("x-llm-d-request-dropped-reason"), "queue_full");
  EXPECT_EQ(Json::parse(refused.body)["error"]["code"], "overloaded");
  EXPECT_EQ(other.post("/v1/chat/completions", kChat).status, 529);
  EXPECT_NE(test.get("/metrics").body.find("tandem_http_rejected_total{reason=\"queue_full\"} 1"),
            std::string::npos);
}

TEST(ServerGeneration, WhileNotReadyRequestsAreRefused) {
  TestServer test;
  test.frontend.set_state(ServingState::kLoading);
  const ClientResponse loading = test.post("/v1/chat/completions", kChat);
  EXPECT_EQ(loading.status, 503);
  EXPECT_EQ(loading.headers.at("x-llm-d-request-dropped-reason"), "loading");
  EXPECT_TRUE(loading.headers.contains("retry-after"));
  EXPECT_EQ(test.frontend.submitted(), 0U);
}

TEST(ServerGeneration, PromptsAreAcceptedTogetherOrNotAtAll) {
  TestServer test;
  test.frontend.set_gate([](size_t position) -> Status {
    return position < 2 ? Status() : Status(Error{ErrorCode::kOverloaded, "full", ""});
  });
  EXPECT_EQ(test.post("/v1/completions", R"({"prompt":["a","b","c"]})").status, 429);
  test.frontend.wait_for_cancels(2);
  test.frontend.emit_text(0, "late events are thrown away");
  EXPECT_EQ(test.get("/health").status, 200);
}

TEST(ServerGeneration, AStopStringStopsTheChoice) {
  TestServer test;
  Client client(test.port());
  client.post("/v1/completions", R"({"prompt":["a","b"],"n":2,"stop":"END"})");
  test.frontend.request(1);
  std::vector<TokenEvent> events = openai::text_events("xENDsurplus");
  for (TokenEvent& event : events) {
    event.choice = 1;
  }
  test.frontend.emit(1, std::move(events));
  test.frontend.wait_for_stops(1);
  EXPECT_EQ(test.frontend.stops()[0].request, RequestId{1});
  EXPECT_EQ(test.frontend.stops()[0].choice, 1);
  test.frontend.emit_finish(0);
  test.frontend.emit_finish(1);
  const Json body = Json::parse(client.read_response().body);
  EXPECT_EQ(body["choices"][3]["text"], "x");
  EXPECT_EQ(body["choices"][3]["stop_reason"], "END");
  EXPECT_EQ(body["usage"]["completion_tokens"], 4);
}

TEST(ServerGeneration, AFailureIsReported) {
  TestServer test;
  const auto fail = [&](size_t n) {
    std::vector<TokenEvent> events;
    events.push_back(openai::finish_event(FinishReason::kError));
    events.back().finish->error = "device lost";
    test.frontend.emit(n, std::move(events));
  };
  Client whole(test.port());
  whole.post("/v1/chat/completions", kChat);
  fail(0);
  const ClientResponse response = whole.read_response();
  EXPECT_EQ(response.status, 500);
  EXPECT_EQ(Json::parse(response.body)["error"]["type"], "server_error");
  Client streamed(test.port());
  streamed.post("/v1/chat/completions", kChatStream);
  fail(1);
  EXPECT_NE(streamed.read_response().body.find("device lost"), std::string::npos);
}

TEST(ServerGeneration, WaitingStreamsAreKeptAlive) {
  ServerOptions options;
  options.keep_alive_comment = std::chrono::milliseconds(1);
  TestServer test(std::move(options));
  Client client(test.port());
  client.post("/v1/chat/completions", kChatStream);
  client.read_until(": keep-alive\n\n");
  test.frontend.emit_finish(0);
  client.read_until("data: [DONE]\n\n");
}

TEST(ServerGeneration, PipelinedGenerationsAreAnsweredInOrder) {
  TestServer test;
  test.frontend.answer_at_once("x");
  Client client(test.port());
  client.post("/v1/completions", R"({"prompt":"a"})", "X-Request-Id: first\r\n");
  client.post("/v1/chat/completions", kChatStream, "X-Request-Id: second\r\n");
  client.post("/v1/completions", R"({"prompt":"a"})", "X-Request-Id: third\r\n");
  EXPECT_EQ(client.read_response().headers.at("x-request-id"), "first");
  EXPECT_EQ(client.read_response().headers.at("x-request-id"), "second");
  EXPECT_EQ(client.read_response().headers.at("x-request-id"), "third");
}

TEST(ServerGeneration, DrainingFinishesWhatRuns) {
  TestServer test;
  Client running(test.port());
  running.post("/v1/chat/completions", kChat);
  test.frontend.request(0);
  Client idle(test.port());
  idle.get("/health");
  EXPECT_EQ(idle.read_response().status, 200);
  EXPECT_FALSE(test.server->drained());
  test.server->stop_accepting();
  EXPECT_TRUE(idle.closed_by_server());
  const ClientResponse refused = test.post("/v1/chat/completions", kChat);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("x-llm-d-request-dropped-reason"), "draining");
  EXPECT_EQ(test.get("/health").status, 200);
  EXPECT_EQ(test.get("/ready").body, R"({"status":"draining"})");
  test.frontend.emit_text(0, "done");
  test.frontend.emit_finish(0);
  const ClientResponse answer = running.read_response();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("connection"), "close");
  test.eventually([&] { return test.server->drained(); });
}

TEST(ServerGeneration, EndingTheServerCancelsWhatRuns) {
  TestServer test;
  Client client(test.port());
  client.post("/v1/chat/completions", kChatStream);
  test.frontend.request(0);
  test.server.reset();
  test.frontend.wait_for_cancels(1);
  EXPECT_TRUE(client.closed_by_server());
  test.frontend.emit_text(0, "nobody hears this");
}

}  // namespace
}  // namespace tandem::api
