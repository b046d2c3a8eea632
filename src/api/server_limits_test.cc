// Clients that leave, dawdle, or send too much, over a real socket.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "api/server.h"
#include "api/test_support.h"

namespace tandem::api {
namespace {

using std::chrono::milliseconds;
constexpr std::string_view kLimitedChat = R"({"messages":[{"role":"user","content":"hi"}]})";
constexpr std::string_view kLimitedChatStream =
    R"({"messages":[{"role":"user","content":"hi"}],"stream":true})";

TEST(ServerLimits, MalformedHttpIsAnsweredAndClosed) {
  TestServer test;
  for (const std::string text :
       {"nonsense\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/3.0\r\nHost: x\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n"}) {
    Client client(test.port());
    client.send(text);
    const ClientResponse response = client.read_response();
    EXPECT_TRUE(response.status == 400 || response.status == 505) << text;
    EXPECT_TRUE(nlohmann::json::accept(response.body));
    EXPECT_TRUE(client.closed_by_server());
  }
}

TEST(ServerLimits, LargeHeadersAndBodiesAreRefused) {
  ServerOptions options;
  options.limits.http = {.max_header_bytes = 2048, .max_body_bytes = 1000};
  TestServer test(std::move(options));
  EXPECT_EQ(test.get("/health", "X-Large: " + std::string(5000, 'a') + "\r\n").status, 431);
  EXPECT_EQ(test.post("/v1/completions", std::string(1001, 'a')).status, 413);
  // The answer survives a client that goes on sending.
  EXPECT_EQ(test.post("/v1/completions", std::string(3000000, 'a')).status, 413);
  Client expecting(test.port());
  expecting.send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n"
      "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(expecting.read_response().status, 413);
}

TEST(ServerLimits, ConnectionsAreLimited) {
  ServerOptions options;
  options.limits.max_connections = 1;
  TestServer test(std::move(options));
  Client first(test.port());
  first.get("/health");
  EXPECT_EQ(first.read_response().status, 200);
  Client second(test.port());
  const ClientResponse refused = second.read_response();
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(second.closed_by_server());
  first.close();
  test.eventually([&] { return test.server->metrics().connections == 0; });
  EXPECT_EQ(test.get("/health").status, 200);
}

TEST(ServerLimits, IdleConnectionsAreClosed) {
  ServerOptions options;
  options.limits.idle_timeout = milliseconds(10);
  TestServer test(std::move(options));
  Client silent(test.port());
  EXPECT_TRUE(silent.closed_by_server());
  Client used(test.port());
  used.get("/health");
  EXPECT_EQ(used.read_response().status, 200);
  EXPECT_TRUE(used.closed_by_server());
}

TEST(ServerLimits, RequestsMustArriveInTime) {
  ServerOptions options;
  options.limits.header_timeout = milliseconds(10);
  TestServer test(std::move(options));
  Client client(test.port());
  client.send("GET /health HTTP/1.1\r\nHo");
  EXPECT_EQ(client.read_response().status, 408);
  EXPECT_TRUE(client.closed_by_server());
}

TEST(ServerLimits, BodiesMustArriveInTime) {
  ServerOptions options;
  options.limits.body_timeout = milliseconds(10);
  TestServer test(std::move(options));
  Client client(test.port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
  const ClientResponse response = client.read_response();
  EXPECT_EQ(response.status, 408);
  EXPECT_NE(response.body.find("body"), std::string::npos);
  EXPECT_TRUE(client.closed_by_server());
  EXPECT_EQ(test.server->metrics().requests_timed_out, 1);
}

TEST(ServerLimits, RequestsBeingSentShareBoundedMemory) {
  ServerOptions options;
  options.limits.max_request_bytes_held = 100000;
  TestServer test(std::move(options));
  Client first(test.port());
  first.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n" +
             std::string(80000, ' '));
  test.eventually([&] { return test.server->metrics().request_bytes_held >= 80000; });
  const ClientResponse refused = test.post("/v1/completions", std::string(90000, ' '));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("x-llm-d-request-dropped-reason"), "request_memory");
  first.close();
  test.eventually([&] { return test.server->metrics().request_bytes_held == 0; });
  EXPECT_EQ(test.post("/v1/completions", std::string(90000, ' ')).status, 400);
}

TEST(ServerLimits, OneClientCannotTakeAllConnections) {
  ServerOptions options;
  options.limits.max_connections_per_client = 1;
  TestServer test(std::move(options));
  Client first(test.port());
  first.get("/health");
  EXPECT_EQ(first.read_response().status, 200);
  {
    Client second(test.port());
    EXPECT_EQ(second.read_response().headers.at("x-llm-d-request-dropped-reason"),
              "connections_of_client");
  }
  first.close();
  test.eventually([&] { return test.server->metrics().connections == 0; });
  Client third(test.port());
  third.get("/health");
  EXPECT_EQ(third.read_response().status, 200);
}

TEST(ServerLimits, IdleConnectionsMakeRoomWhenPlacesRunShort) {
  ServerOptions options;
  options.limits.max_connections = 4;
  options.limits.crowded_idle_timeout = milliseconds(10);
  TestServer test(std::move(options));
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 4; ++i) {
    idle.push_back(std::make_unique<Client>(test.port()));
  }
  test.eventually([&] { return test.server->metrics().idle_closed >= 1; });
  EXPECT_EQ(test.get("/health").status, 200);
}

TEST(ServerLimits, LeavingAStreamCancelsIt) {
  TestServer test;
  Client client(test.port());
  client.post("/v1/chat/completions", kLimitedChatStream);
  test.frontend.emit_text(0, "a");
  client.read_until("\n\n");
  client.close();
  test.frontend.wait_for_cancels(1);
  EXPECT_EQ(test.server->metrics().disconnect_cancels, 1);
  test.frontend.emit_finish(0, FinishReason::kCancelled);
  test.eventually([&] { return test.server->drained(); });
}

TEST(ServerLimits, LeavingBeforeAWholeAnswerCancelsIt) {
  TestServer test;
  for (const bool abruptly : {false, true}) {
    Client client(test.port());
    client.post("/v1/completions", R"({"prompt":["a","b"]})");
    test.frontend.request(abruptly ? 3 : 1);
    if (abruptly) {
      client.reset_on_close();
    }
    client.close();
    test.frontend.wait_for_cancels(abruptly ? 4 : 2);
  }
  EXPECT_EQ(test.server->metrics().disconnect_cancels, 2);
  test.eventually([&] { return test.server->metrics().generations == 0; });
  EXPECT_NE(test.get("/metrics").body.find("tandem_http_disconnect_cancels_total 2\n"),
            std::string::npos);
}

TEST(ServerLimits, ReadersThatFallBehindAreCut) {
  ServerOptions options;
  options.limits.max_unsent_bytes = 16 * 1024;
  options.limits.socket_send_buffer_bytes = 4096;
  TestServer test(std::move(options));
  Client slow(test.port(), 4096);
  slow.post("/v1/chat/completions", kLimitedChatStream);
  test.frontend.request(0);
  for (int i = 0; i < 1000 && test.server->metrics().slow_readers_cut == 0; ++i) {
    test.frontend.emit_text(0, std::string(100, 'a'));
    test.eventually([&] { return test.server->metrics().pending_deliveries == 0; });
  }
  test.frontend.wait_for_cancels(1);
  EXPECT_EQ(test.server->metrics().slow_readers_cut, 1);
  EXPECT_EQ(test.server->metrics().disconnect_cancels, 0);
  EXPECT_TRUE(slow.closed_by_server());
  test.eventually([&] { return test.server->metrics().unsent_bytes == 0; });
}

TEST(ServerLimits, WritesThatNobodyTakesAreCut) {
  ServerOptions options;
  options.limits.write_timeout = milliseconds(20);
  options.limits.socket_send_buffer_bytes = 4096;
  TestServer test(std::move(options));
  test.frontend.answer_at_once(std::string(1000000, 'a'));
  Client slow(test.port(), 4096);
  slow.post("/v1/chat/completions", kLimitedChat);
  test.eventually([&] { return test.server->metrics().slow_readers_cut == 1; });
}

TEST(ServerLimits, LargeAnswersReachReadersInTime) {
  ServerOptions options;
  options.limits.max_unsent_bytes = 16 * 1024;
  TestServer test(std::move(options));
  test.frontend.answer_at_once(std::string(300000, 'a'));
  const ClientResponse response = test.post("/v1/chat/completions", kLimitedChat);
  EXPECT_EQ(nlohmann::json::parse(response.body)["usage"]["completion_tokens"], 300000);
}

TEST(ServerLimits, BytesSentAheadAreBounded) {
  ServerOptions options;
  options.limits.max_pipelined_bytes = 100;
  TestServer test(std::move(options));
  Client client(test.port());
  client.post("/v1/completions", R"({"prompt":"a"})");
  test.frontend.request(0);
  for (int i = 0; i < 20; ++i) {
    client.get("/version");
  }
  test.frontend.emit_finish(0);
  EXPECT_EQ(client.read_response().status, 200);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(client.read_response().body, R"({"version":"unknown"})");
  }
}

}  // namespace
}  // namespace tandem::api
