// What clients make the server hold and do: bodies before their key is known, answers that stay
// unread, long work beside the I/O thread. Over a real socket.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "api/server.h"
#include "api/test_support.h"

namespace tandem::api {
namespace {

using std::chrono::milliseconds;
constexpr std::string_view kPrompt = R"({"prompt":"a"})";
constexpr std::string_view kKey = "Authorization: Bearer one\r\n";

std::string head(std::string_view path, size_t length, std::string_view headers = "") {
  return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n", path, headers,
                     length);
}

std::string reason(const ClientResponse& response) {
  const auto found = response.headers.find("x-llm-d-request-dropped-reason");
  return found == response.headers.end() ? "" : found->second;
}

ServerOptions with_key() {
  ServerOptions options;
  options.api_keys = {{.key = "one"}};
  return options;
}

// ---------------------------------------------------------------- bodies

TEST(ServerMemory, RequestsAreRefusedByTheirHeaders) {
  TestServer test(with_key());
  struct Case {
    std::string path;
    std::string headers;
    int status;
  };
  const Case cases[] = {{"/v1/completions", "", 401},
                        {"/v1/completions", "Expect: 100-continue\r\n", 401},
                        {"/v1/completions", "Authorization: Bearer two\r\n", 401},
                        {"/tokenize", "", 401},
                        {"/none", "", 404},
                        {"/v1/models", std::string(kKey), 405}};
  const auto refuses = [&](const Case& each, int64_t length) {
    Client client(test.port());
    client.send(head(each.path, length, each.headers + "X-Request-Id: mine\r\n"));
    const ClientResponse refused = client.read_response();  // no byte of the body was sent
    EXPECT_EQ(refused.status, each.status) << each.path;
    EXPECT_EQ(refused.headers.at("x-request-id"), "mine");
    EXPECT_EQ(refused.headers.at("connection"), "close");
    EXPECT_TRUE(client.closed_by_server());
  };
  constexpr int64_t kTooLong = 100'000'000'000;
  for (const Case& each : cases) {
    refuses(each, 30'000'000);
    refuses(each, kTooLong);
  }
  refuses({"/v1/completions", std::string(kKey), 413}, kTooLong);
  EXPECT_EQ(test.server->metrics().request_bytes_held, 0);
}

TEST(ServerMemory, ARefusalWhoseBodyIsThereKeepsTheConnection) {
  TestServer test(with_key());
  test.frontend.answer_at_once("x");
  Client client(test.port());
  client.post("/v1/completions", kPrompt);
  EXPECT_EQ(client.read_response().status, 401);
  client.post("/v1/completions", kPrompt, kKey);
  EXPECT_EQ(client.read_response().status, 200);
}

TEST(ServerMemory, BodiesThatNobodyReadsAreNotKept) {
  TestServer test;
  Client client(test.port());
  client.send(head("/ping", 2'000'000));
  for (int i = 0; i < 20; ++i) {
    client.send(std::string(100'000, 'x'));
    EXPECT_EQ(test.server->metrics().request_bytes_held, 0);
  }
  EXPECT_EQ(client.read_response().status, 200);
  client.get("/version");
  EXPECT_EQ(client.read_response().status, 200);
}

// Clients without a key cannot make those with one wait for memory.
TEST(ServerMemory, WithoutAKeyNoMemoryForRequestsIsTaken) {
  ServerOptions options = with_key();
  options.limits.max_request_bytes_held = 100'000;
  TestServer test(std::move(options));
  std::vector<std::unique_ptr<Client>> keyless;
  for (int i = 0; i < 8; ++i) {
    keyless.push_back(std::make_unique<Client>(test.port()));
    if (i % 2 == 0) {
      keyless.back()->send(head("/v1/completions", 90'000) + std::string(60'000, ' '));
    } else {
      keyless.back()->send("GET /health HTTP/1.1\r\nX: " + std::string(30'000, 'x'));
    }
  }
  test.eventually([&] { return test.server->metrics().connections >= 8; });
  Client client(test.port());
  client.send(head("/v1/completions", 90'000, kKey) + std::string(45'000, ' '));
  test.eventually([&] { return test.server->metrics().request_bytes_held >= 45'000; });
  client.send(std::string(45'000, ' '));
  EXPECT_EQ(client.read_response().status, 400) << "read and parsed, not refused";
  test.eventually([&] { return test.server->metrics().request_bytes_held == 0; });
}

TEST(ServerMemory, TheNextRequestHasClocksOfItsOwn) {
  ServerOptions options;
  options.limits.body_timeout = milliseconds(30);
  TestServer test(std::move(options));
  Client client(test.port());
  client.send(head("/v1/completions", kPrompt.size()));
  test.eventually([&] { return test.server->metrics().connections == 1; });
  client.send(kPrompt);
  test.frontend.request(0);
  client.send("GET /version HTTP/1.1\r\nHo");
  std::this_thread::sleep_for(milliseconds(40));  // longer than a body may take
  test.frontend.emit_finish(0);
  EXPECT_EQ(client.read_response().status, 200);
  std::this_thread::sleep_for(milliseconds(40));
  client.send("st: x\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_EQ(test.server->metrics().requests_timed_out, 0);
}

// ---------------------------------------------------------------- answers

TEST(ServerMemory, LargePiecesOfAStreamReachTheirReader) {
  ServerOptions options;
  options.limits.max_unsent_bytes = 16 * 1024;
  options.limits.socket_send_buffer_bytes = 4096;
  TestServer test(std::move(options));
  Client client(test.port());
  client.post("/v1/completions", R"({"prompt":"a","stream":true})");
  constexpr int kSteps = 4;
  for (int i = 0; i < kSteps; ++i) {
    test.frontend.emit_text(0, std::string(2000, 'a'));  // each some hundred KiB of chunks
    test.eventually([&] { return test.server->metrics().pending_deliveries == 0; });
    if (i == 0) {
      client.read_until("\"text\":\"a\"");
    }
    test.eventually([&] {
      client.read_until("\"text\":\"a\"");
      return test.server->metrics().unsent_bytes < 16 * 1024;
    });
  }
  test.frontend.emit_finish(0);
  client.read_until("data: [DONE]\n\n");
  EXPECT_EQ(test.server->metrics().slow_readers_cut, 0);
  test.eventually([&] { return test.server->metrics().unsent_bytes == 0; });
}

TEST(ServerMemory, WholeAnswersCountUntilTheyAreRead) {
  ServerOptions options;
  options.limits.socket_send_buffer_bytes = 4096;
  TestServer test(std::move(options));
  test.frontend.answer_at_once(std::string(1'000'000, 'a'));
  Client slow(test.port(), 4096);
  slow.post("/v1/completions", kPrompt);
  test.eventually([&] { return test.server->metrics().unsent_bytes >= 1'000'000; });
  EXPECT_EQ(slow.read_response().body.size() / 1'000'000, 1U);
  test.eventually([&] { return test.server->metrics().unsent_bytes == 0; });
  slow.post("/v1/completions", kPrompt);
  test.eventually([&] { return test.server->metrics().unsent_bytes >= 1'000'000; });
  slow.reset_on_close();
  slow.close();
  test.eventually([&] { return test.server->metrics().unsent_bytes == 0; });
}

TEST(ServerMemory, UnreadAnswersAreBoundedOverAllConnections) {
  ServerOptions options;
  options.limits.socket_send_buffer_bytes = 4096;
  options.limits.max_answer_bytes_held = 1'500'000;
  TestServer test(std::move(options));
  test.frontend.answer_at_once(std::string(1'000'000, 'a'));
  Client unread(test.port(), 4096);
  unread.post("/v1/completions", kPrompt);
  test.eventually([&] { return test.server->metrics().unsent_bytes >= 1'000'000; });
  const ClientResponse refused = test.post("/v1/completions", kPrompt);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(reason(refused), "answer_memory");
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_NE(refused.body.find("--max-answer-bytes"), std::string::npos);
  test.frontend.answer_at_once("small");
  EXPECT_EQ(test.post("/v1/completions", kPrompt).status, 200) << "small answers always pass";
}

TEST(ServerMemory, ReadersThatTakeNothingMakeRoomWhenAnswersFillTheMemory) {
  ServerOptions options;
  options.limits.socket_send_buffer_bytes = 4096;
  options.limits.max_answer_bytes_held = 1'200'000;
  options.limits.crowded_write_timeout = milliseconds(20);
  TestServer test(std::move(options));
  test.frontend.answer_at_once(std::string(1'000'000, 'a'));
  Client unread(test.port(), 4096);
  unread.post("/v1/completions", kPrompt);
  test.eventually([&] { return test.server->metrics().slow_readers_cut == 1; });
  EXPECT_EQ(test.post("/v1/completions", kPrompt).status, 200);
}

TEST(ServerMemory, AnswersBeingMadeCountAndAreBounded) {
  ServerOptions options;
  options.limits.max_answer_bytes_held = 1'500'000;
  TestServer test(std::move(options));
  Client first(test.port());
  first.post("/v1/completions", kPrompt);
  test.frontend.emit_text(0, std::string(1'000'000, 'a'));
  test.eventually([&] { return test.server->metrics().unsent_bytes >= 1'000'000; });
  EXPECT_LT(test.server->metrics().unsent_bytes, 1'100'000);
  Client second(test.port());
  second.post("/v1/completions", kPrompt);
  test.frontend.emit_text(1, std::string(1'000'000, 'a'));
  const ClientResponse refused = second.read_response();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(reason(refused), "answer_memory");
  test.frontend.wait_for_cancels(1);
  Client third(test.port());
  third.post("/v1/completions", kPrompt);
  test.frontend.emit_text(2, std::string(1000, 'a'));
  test.frontend.emit_finish(2);
  EXPECT_EQ(third.read_response().status, 200) << "small answers always pass";
  test.frontend.emit_finish(0);
  EXPECT_EQ(first.read_response().status, 200);
  test.eventually([&] { return test.server->metrics().unsent_bytes == 0; });
}

// ---------------------------------------------------------------- long work

TokenEvent scores_of_prompt(int32_t tokens) {
  TokenEvent event;
  event.kind = TokenEvent::Kind::kPrompt;
  event.prompt_logprobs = std::make_unique<std::vector<LogprobInfo>>();
  for (int32_t i = 1; i < tokens; ++i) {
    event.prompt_logprobs->push_back(
        {.logprob = -0.5F, .rank = 1, .top = {{.token = 97, .logprob = -0.25F}}});
  }
  return event;
}

// What is written beside the loop is what would be written on it, in the same order.
TEST(ServerMemory, AnswersWrittenAsideAreTheSame) {
  const auto answers_of = [](size_t inline_answer_bytes) {
    ServerOptions options;
    options.inline_answer_bytes = inline_answer_bytes;
    TestServer test(std::move(options));
    std::vector<std::string> answers;
    for (const bool stream : {true, false}) {
      const size_t n = answers.size();
      Client client(test.port());
      client.post(
          "/v1/completions",
          fmt::format(
              R"({{"prompt":"abc","echo":true,"logprobs":1,"n":2,"stop":"yy","stream":{}}})",
              stream),
          "X-Request-Id: r\r\n");
      test.frontend.request(n);
      std::vector<TokenEvent> first;
      first.push_back(scores_of_prompt(4));
      test.frontend.emit(n, std::move(first));
      test.frontend.emit_text(n, "x");
      test.frontend.emit_text(n, "yyz");
      test.frontend.emit_finish(n);
      answers.push_back(client.read_response().body);
      test.frontend.wait_for_stops(n + 1);
    }
    test.eventually([&] { return test.server->metrics().unsent_bytes == 0; });
    EXPECT_EQ(test.server->metrics().generations, 0);
    return answers;
  };
  const std::vector<std::string> here = answers_of(size_t{1} << 30);
  EXPECT_EQ(answers_of(1), here);
  EXPECT_NE(here[0].find(R"("text":"abc")"), std::string::npos) << here[0];
  EXPECT_EQ(nlohmann::json::parse(here[1])["choices"][0]["text"], "abcx");
}

// A reader is not cut off for a backlog that a side thread produced in one piece.
TEST(ServerMemory, EventsThatWaitForALargePieceDoNotMakeItsReaderSlow) {
  for (int i = 0; i < 20; ++i) {
    ServerOptions options;
    options.inline_answer_bytes = 1;
    options.inline_events = 2;
    options.limits.max_unsent_bytes = 4000;  // of each prompt's echo there are some 9 KB
    TestServer test(std::move(options));
    Client client(test.port());
    const std::string text(60, 'a');
    client.post("/v1/completions",
                fmt::format(R"({{"prompt":["{0}","{0}"],"max_tokens":3,"echo":true,"logprobs":1,)"
                            R"("n":2,"stream":true}})",
                            text));
    test.frontend.request(1);
    for (size_t prompt = 0; prompt < 2; ++prompt) {
      std::vector<TokenEvent> first;
      first.push_back(scores_of_prompt(61));
      test.frontend.emit(prompt, std::move(first));
    }
    for (size_t prompt = 0; prompt < 2; ++prompt) {
      for (int32_t choice = 0; choice < 2; ++choice) {
        std::vector<TokenEvent> events;
        for (int32_t token = 0; token < 3; ++token) {
          events.push_back(openai::token_event('x', choice));
        }
        events.push_back(openai::finish_event(FinishReason::kLength, choice));
        test.frontend.emit(prompt, std::move(events));
      }
    }
    const std::string body = client.read_response().body;
    EXPECT_TRUE(body.ends_with("data: [DONE]\n\n"));
    size_t tokens = 0;
    for (size_t at = body.find("\"text\":\"x\""); at != std::string::npos;
         at = body.find("\"text\":\"x\"", at + 1)) {
      ++tokens;
    }
    EXPECT_EQ(tokens, 12U);
    EXPECT_EQ(test.server->metrics().slow_readers_cut, 0);
  }
}

// A prompt that costs the engine time is submitted beside the loop; what comes of it is the same.
TEST(ServerMemory, LongPromptsAreSubmittedAside) {
  ServerOptions options;
  options.inline_submit_bytes = 0;
  TestServer test(std::move(options));
  test.frontend.set_gate([&](size_t n) {
    return n < 4 ? Status() : Status(Error{ErrorCode::kOverloaded, "the queue is full", ""});
  });
  test.frontend.answer_at_once("xyz");  // events come before the job does
  for (const bool stream : {true, false}) {
    const ClientResponse response =
        test.post("/v1/completions",
                  fmt::format(R"({{"prompt":["a","b"],"max_tokens":3,"stream":{}}})", stream));
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_NE(response.body.find(stream ? "data: [DONE]" : R"("text":"xyz")"), std::string::npos)
        << response.body;
  }
  EXPECT_EQ(test.post("/v1/completions", kPrompt).status, 429) << "refusals come back, too";
  test.eventually([&] { return test.server->metrics().generations == 0; });
}

// Chats wait in the side threads until the gate is opened.
struct GatedServer {
  explicit GatedServer(size_t max_waiting = 100) {
    ServerOptions options;
    options.inline_parse_bytes = 10;
    options.side = {.threads = 2, .max_short_cost = 500, .max_waiting = max_waiting};
    options.local_time = [this] { return gate.pass(); };
    test = std::make_unique<TestServer>(std::move(options));
    test->frontend.answer_at_once("x");
  }
  [[nodiscard]] int64_t held() const { return test->server->metrics().request_bytes_held; }

  const std::string chat = long_chat();
  Gate gate;
  std::unique_ptr<TestServer> test;
};

TEST(ServerMemory, LongBodiesHoldNobodyUpAndGiveTheirBytesBackOnce) {
  GatedServer gated;
  TestServer& test = *gated.test;
  Client first(test.port());
  first.post("/v1/chat/completions", gated.chat);
  gated.gate.wait_for_arrivals(1);
  EXPECT_EQ(test.post("/v1/completions", kPrompt).status, 200) << "a short body beside a long one";
  EXPECT_EQ(test.get("/health").status, 200);
  const int64_t one = gated.held();
  EXPECT_EQ(one, std::ssize(gated.chat));
  Client second(test.port());
  second.post("/v1/chat/completions", gated.chat);
  test.eventually([&] { return gated.held() == 2 * one; });
  second.close();  // its body leaves the queue with it
  test.eventually([&] { return gated.held() == one; });
  first.close();  // being parsed: counts until that ends
  test.eventually([&] { return test.server->metrics().connections == 0; });
  EXPECT_EQ(gated.held(), one);
  gated.gate.open();
  test.eventually([&] { return gated.held() == 0; });
  EXPECT_EQ(test.post("/v1/chat/completions", gated.chat).status, 200);
  test.eventually([&] { return gated.held() == 0; });
}

TEST(ServerMemory, TooManyLongBodiesAreRefused) {
  GatedServer gated(1);
  TestServer& test = *gated.test;
  Client running(test.port());
  running.post("/v1/chat/completions", gated.chat);
  gated.gate.wait_for_arrivals(1);
  Client waiting(test.port());
  waiting.post("/v1/chat/completions", gated.chat);
  test.eventually([&] { return gated.held() == 2 * std::ssize(gated.chat); });
  const ClientResponse refused = test.post("/v1/chat/completions", gated.chat);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(reason(refused), "long_requests");
  gated.gate.open();
  EXPECT_EQ(running.read_response().status, 200);
  EXPECT_EQ(waiting.read_response().status, 200);
}

TEST(ServerMemory, TheServerEndsWhileLongWorkIsUnderWay) {
  GatedServer gated;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<Client>(gated.test->port()));
    clients.back()->post("/v1/chat/completions", gated.chat);
  }
  gated.gate.wait_for_arrivals(1);
  std::thread ending([&] { gated.test->server.reset(); });
  EXPECT_TRUE(clients.back()->closed_by_server());
  gated.gate.open();
  ending.join();
  EXPECT_EQ(gated.test->frontend.submitted(), 0U);
}

TEST(ServerMemory, TheServerEndsInAFloodOfLongWork) {
  const std::string body = R"({"prompt":")" + std::string(20'000, 'a') + "\"}";
  for (int i = 0; i < 20; ++i) {
    auto test = std::make_unique<TestServer>();
    std::vector<std::unique_ptr<Client>> clients;
    std::vector<std::thread> threads;
    for (int c = 0; c < 3; ++c) {
      clients.push_back(std::make_unique<Client>(test->port()));
      threads.emplace_back([&body, c, client = clients.back().get()] {
        for (int k = 0; k < 8; ++k) {
          client->post(c == 0 ? "/v1/completions" : "/tokenize", body);
        }
        client->closed_by_server();
      });
    }
    std::this_thread::sleep_for(milliseconds(i));
    test->server.reset();
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
}

}  // namespace
}  // namespace tandem::api
